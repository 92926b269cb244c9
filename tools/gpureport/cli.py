"""Arguments of `tools/gpu_report`."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from .parts import ROOT, Machine, Part, parts
from .run import Result, Runner, say_on_stderr
from .write import described_commit, write

REPORT_S = 10.0  # for pictures, at the end

DESCRIPTION = """\
Tests and benchmarks of the backends for GPUs on this machine, within a time, as one report:
gpu-<date>.md, .json and pictures, written anew whenever a part has ended. Parts run side by side
where there are GPUs enough, each within its share of the time; what was cut off is reported as far
as it came. Called again with the same --work it goes on with what is not done. The exit status is 1
where a part failed, 2 where there is no GPU.
"""


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/gpu_report", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--budget-seconds", type=float, default=480.0, help="for all of it (default 480)"
    )
    parser.add_argument(
        "--parts", default="*", help="comma list of names or patterns, such as bench*,spec-nccl-*"
    )
    parser.add_argument("--list", action="store_true", help="names of the parts, and end")
    parser.add_argument("--gpus", type=int, help="how many to use (default: all)")
    parser.add_argument(
        "--parts-a-gpu", type=int, default=1, metavar="N",
        help="so many parts may share a GPU, but for those that measure (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--soak-minutes", type=float, default=0.0, metavar="M",
        help="also random operations of the seeds 1, 2 and 3, each for so long (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--commit", help="what is reported on, where git does not know (default: git describe)"
    )
    parser.add_argument(
        "--build-dir", type=Path, default=ROOT / "build/dev", help="where the C++ tests are"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build/gpu_report", help="logs, and what is done so far"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs/reports", help="folder of the report"
    )
    parser.add_argument(
        "--dry-run", action="store_true",
        help="no GPUs: the same on the CPU, over the stand-in libraries of --build-dir",
    )  # fmt: skip
    return parser.parse_args(given)


def chosen(all_parts: list[Part], patterns: str) -> list[Part]:
    """Throws SystemExit for a pattern that means nothing."""
    wanted = []
    for pattern in patterns.split(","):
        found = [part for part in all_parts if fnmatch.fnmatchcase(part.name, pattern)]
        if not found:
            names = ", ".join(part.name for part in all_parts)
            raise SystemExit(f"tools/gpu_report: no part is called {pattern}; there are {names}")
        wanted += found
    return [part for part in all_parts if part in wanted]


def terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # by way of whoever has processes to end


def main(argv: list[str] | None = None) -> int:
    given = arguments(argv)
    gpus = 0
    if not given.dry_run:
        import torch

        gpus = torch.cuda.device_count()
        if gpus == 0 and not given.list:
            print("tools/gpu_report: torch sees no GPU (torchcomms doctor)", file=sys.stderr)
            return 2
        gpus = min(gpus, given.gpus or gpus)
    build, work = given.build_dir.absolute(), given.work.absolute()
    stand_ins = build / "stand_in" if given.dry_run else None
    machine = Machine(gpus, stand_ins, max(1, given.parts_a_gpu))
    wanted = chosen(list(parts(machine, build, work, given.soak_minutes)), given.parts)
    if given.list:
        print("\n".join(f"{part.name:24} {part.title}" for part in wanted))
        return 0
    work.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, terminated)
    command = " ".join(["tools/gpu_report", *(sys.argv[1:] if argv is None else argv)])

    def results() -> list[Result]:
        return [runner.results[part.name] for part in wanted if part.name in runner.results]

    def report(draws: bool = False) -> Path:
        return write(
            machine, results(), out=work, where=given.out, command=command, draws=draws,
            commit=given.commit or described_commit(),
        )  # fmt: skip

    runner = Runner(
        machine, work, given.budget_seconds - REPORT_S, say_on_stderr(time.monotonic()),
        noted=report,
    )  # fmt: skip
    try:
        runner.run(wanted)
    finally:
        print(report(draws=True))
    return int(any(result.outcome in ("failed", "over time") for result in results()))
