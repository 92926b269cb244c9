"""Measures what docs/reports says about calls, imports and `gloo`, and holds it against the limits.

    python -m benchmarks.foundation [--out docs/reports/foundation.jsonl]

Wants a quiet machine. The exit status is 1 when a limit is not met.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from torchcomms import _output, bench
from torchcomms.bench.result import machine

MOST_CALL_US = {
    "all_reduce(tensor, op, False)": 1.0,
    "all_reduce(tensor=, op=, async_op=)": 1.4,
}
MOST_IMPORT_S = 0.25
MOST_RATIO = 1.05  # of gloo to torch.distributed with gloo, at each size
# The processes are started anew several times: where their threads and memory come to lie moves a
# median by a third on a small machine, for either side. What counts is the median of the ratios.
LAUNCHES = 5
PLAN = bench.Plan(
    ops=["all_reduce"],
    backends=["gloo", "c10d:gloo"],
    sizes=bench.parse_sizes("8:16M"),
    seconds=0.5,
    rounds=20,
)

Claim = tuple[str, float, float]  # what, measured, limit


def overhead(lines: list[str]) -> Iterator[Claim]:
    facts = machine("cpu")
    for cost in bench.call_cost():
        lines.append(json.dumps({"measure": "call", **cost.as_dict(), **facts}))
        if cost.call in MOST_CALL_US:
            yield f"us, {cost.call}", cost.p50_us, MOST_CALL_US[cost.call]
    cost_of_import = bench.import_cost(pairs=9)
    lines.append(json.dumps({"measure": "import", **cost_of_import.as_dict(), **facts}))
    yield "s, added to the import of torch", cost_of_import.added_s, MOST_IMPORT_S


def gloo(lines: list[str]) -> Iterator[Claim]:
    ratios: dict[int, list[float]] = defaultdict(list)
    for launch in range(LAUNCHES):
        print(f"launch {launch + 1} of {LAUNCHES}", file=sys.stderr, flush=True)
        points = list(bench.launch(PLAN, 2, note=lambda text: print(text, file=sys.stderr)))
        lines += [point.to_json() for point in points]
        for ours, theirs in zip(points[::2], points[1::2], strict=True):
            if not (ours.correct and theirs.correct):
                yield f"wrong values at {ours.bytes} bytes", 1, 0
            ratios[ours.bytes].append(ours.p50_us / theirs.p50_us)
    for size, measured in ratios.items():
        spread = f"{min(measured):.2f} to {max(measured):.2f}"
        what = f"gloo / c10d:gloo, all_reduce of {size} bytes ({spread})"
        yield what, statistics.median(measured), MOST_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, help="write the lines here")
    out = parser.parse_args().out
    _output.prepare(out)
    lines: list[str] = []
    missed = 0
    for claims in (overhead(lines), gloo(lines)):
        for what, measured, limit in claims:
            missed += measured > limit
            verdict = "ok" if measured <= limit else "MISSED"
            print(f"{verdict:6}  {measured:8.3f}  (at most {limit:g})  {what}", flush=True)
    if out is not None:
        _output.write(out, "\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
