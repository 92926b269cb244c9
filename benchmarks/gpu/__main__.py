"""What backend `nccl` costs on GPUs, beside NCCL alone and torch.distributed, in one run.

    python -m benchmarks.gpu [--ranks 4] [--json FILE] [--markdown FILE]

One process a GPU. The exit status is 1 when a line is missed or a value is wrong, 2 where there is
no GPU. NVLink multicast is off (NCCL_NVLS_ENABLE=0) unless the environment says otherwise. With
`--device cpu` and TORCHCOMM_NCCL_LIBRARY naming a library for host memory it shows only that the
suite works.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import torch
from torchcomms import _output, bench
from torchcomms.bench.result import machine

from benchmarks.gpu import claims, host, start
from benchmarks.gpu.sides import ON, OURS, RAW, UNLIMITED

SMALL = 1024
OPERATIONS = (
    "all_reduce",
    "all_gather_single",
    "reduce_scatter_single",
    "broadcast",
    "all_to_all_single",
)
# Of large operations a graph with few takes long enough.
GRAPH_OPERATIONS, LARGE_GRAPH_OPERATIONS = 50, 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--ranks", type=int, help="processes to start: as many as GPUs, or 2")
    parser.add_argument("--device", choices=list(ON), default="cuda")
    parser.add_argument("--bytes", default="1M,16M,256M", help="the sizes of large operations")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each point and side")
    parser.add_argument("--rounds", type=int, default=10, help="turns at a point")
    parser.add_argument("--starts", type=int, default=15, help="communicators made, and split")
    parser.add_argument("--json", type=Path, help="write all lines here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    return parser.parse_args()


def under_torchrun(given: argparse.Namespace) -> int:
    ranks = given.ranks or torch.cuda.device_count() or 2
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "-m", "benchmarks.gpu", *sys.argv[1:]]
    environment = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1", **os.environ}
    with tempfile.TemporaryDirectory() as folder:
        written = given.json or Path(folder, "lines.jsonl")
        command += ["--json", str(written)]
        status = subprocess.run(command, env=environment, check=False).returncode
        return status or verdict(written)


def verdict(lines: Path) -> int:
    """1 when a line is missed or a value is wrong."""
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    return int(any(row.get("verdict") == "miss" or row.get("correct") is False for row in rows))


def plans(given: argparse.Namespace) -> list[bench.Plan]:
    """A communicator that has been in a graph is not the same in eager calls: a plan for each."""
    sides = ON[given.device]
    result = []
    for mode in sides.modes:
        common = {
            "modes": [mode], "device": given.device, "dtype": sides.dtype, "rounds": given.rounds,
        }  # fmt: skip
        small = [OURS, sides.baseline, RAW, *([UNLIMITED] if mode == "graph" else [])]
        result.append(
            bench.Plan(
                ["all_reduce"], small, [SMALL],
                seconds=5 * given.seconds, graph_operations=GRAPH_OPERATIONS, **common,
            )
        )  # fmt: skip
        result.append(
            bench.Plan(
                OPERATIONS, [OURS, RAW], bench.parse_sizes(given.bytes),
                seconds=given.seconds, graph_operations=LARGE_GRAPH_OPERATIONS, **common,
            )
        )  # fmt: skip
    return result


def measure(given: argparse.Namespace, world: bench.World) -> None:
    def say(text: str) -> None:
        if world.rank == 0:
            print(f"[{time.monotonic() - begin:5.1f} s] {text}", file=sys.stderr, flush=True)

    begin = time.monotonic()
    device = torch.device("cpu")
    if given.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    points: list[bench.Point] = []
    for plan in plans(given):
        points += bench.run_here(plan, world, say, say)
    say("host time of calls")
    host_us = host.enqueue_us(world, device, SMALL, 10 * given.rounds)
    if world.rank == 0:  # in case that what follows ends this process
        report(given, points, host_us, {})
    say("start and split")
    started = start.measure(world, device, given.starts)
    say("done")
    if world.rank == 0:
        report(given, points, host_us, started)


def report(
    given: argparse.Namespace,
    points: list[bench.Point],
    host_us: dict[str, float],
    started: dict[str, dict[str, float]],
) -> None:
    torchs, medians = ON[given.device].baseline, claims.Points(points)
    lines = [
        *claims.of_calls(medians, host_us, SMALL, torchs),
        *claims.of_sizes(medians, OPERATIONS, bench.parse_sizes(given.bytes)),
        *(claims.of_start(started, torchs) if started else ()),
    ]
    text = claims.markdown(lines)
    print(text, flush=True)
    print("\n" + bench.points_table(points), flush=True)
    if given.markdown is not None:
        _output.write(given.markdown, text + "\n")
    if given.json is not None:
        facts = {
            **machine(given.device), "ranks": points[0].ranks,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }  # fmt: skip
        written: list[dict[str, object]] = [json.loads(point.to_json()) for point in points]
        written.append({"measure": "enqueue_us", **host_us, **facts})
        for side, values in started.items():
            written.append({"measure": "start", "backend": side, **values, **facts})
        written += [{**claim.as_dict(), **facts} for claim in lines]
        _output.write(given.json, "".join(json.dumps(line) + "\n" for line in written))


def main() -> int:
    given = arguments()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks.gpu: torch sees no CUDA device (torchcomms doctor)", file=sys.stderr)
        return 2
    _output.prepare(given.json, given.markdown)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return under_torchrun(given)
    faulthandler.enable()
    with bench.World.of_launcher("benchmarks_gpu") as world:
        measure(given, world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
