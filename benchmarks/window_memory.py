"""Collectives of tensors that lie in a window, beside those of private memory, in turns.

torchrun --nproc-per-node 2 benchmarks/window_memory.py [--bytes 1M,16M] [--seconds 0.5]

`staged` is private memory through the staged ring (hint `ctran::single_copy=false`), `private` what
private memory gets by default, `window` tensors in shared memory that a window makes known to all
ranks. Times are the slowest rank's medians and 99th percentiles in us; values are checked.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torchcomms
from torchcomms.bench.sizes import parse_size

ROUNDS = 20
OPERATIONS = ("all_reduce", "reduce_scatter_single", "all_gather_single", "broadcast")


def call_of(
    comm: torchcomms.TorchComm, op: str, whole: torch.Tensor, part: torch.Tensor
) -> Callable[[], object]:
    if op == "all_reduce":
        return lambda: comm.all_reduce(whole, torchcomms.ReduceOp.MAX, async_op=False)
    if op == "reduce_scatter_single":
        return lambda: comm.reduce_scatter_single(
            part, whole, torchcomms.ReduceOp.MAX, async_op=False
        )
    if op == "all_gather_single":
        return lambda: comm.all_gather_single(whole, part, async_op=False)
    return lambda: comm.broadcast(whole, 0, async_op=False)


def check(op: str, rank: int, ranks: int, whole: torch.Tensor, part: torch.Tensor) -> None:
    results = {
        "all_reduce": (whole, [ranks - 1] * ranks),
        "reduce_scatter_single": (part, [ranks - 1]),
        "all_gather_single": (whole, list(range(ranks))),
        "broadcast": (whole, [0] * ranks),
    }
    tensor, values = results[op]
    blocks = tensor.view(len(values), -1)
    expected = torch.tensor(values, dtype=torch.float32).unsqueeze(1)
    assert bool((blocks == expected).all()), f"rank {rank}: {op} gave wrong values"


@dataclass
class Side:
    """One kind of memory, with the communicator that its calls go to."""

    name: str
    comm: torchcomms.TorchComm
    whole: torch.Tensor
    part: torch.Tensor
    times: list[float] = field(default_factory=list)

    def turn(self, op: str, seconds: float) -> list[float]:
        """The slowest rank's time of each call, as many as fit into `seconds`; values checked."""
        rank, ranks = self.comm.get_rank(), self.comm.get_size()
        call = call_of(self.comm, op, self.whole, self.part)
        self.whole.fill_(rank)
        self.part.fill_(rank)
        self.comm.barrier(async_op=False)
        begin = time.perf_counter()
        call()
        once = torch.tensor([time.perf_counter() - begin])
        self.comm.all_reduce(once, torchcomms.ReduceOp.MAX, async_op=False)
        taken = []
        for _ in range(max(2, min(500, int(seconds / float(once))))):
            begin = time.perf_counter()
            call()
            taken.append((time.perf_counter() - begin) * 1e6)
        check(op, rank, ranks, self.whole, self.part)
        worst = torch.tensor(taken)
        self.comm.all_reduce(worst, torchcomms.ReduceOp.MAX, async_op=False)
        return worst.tolist()


def measure(
    op: str, count: int, seconds: float, comms: dict[str, torchcomms.TorchComm]
) -> list[Side]:
    ranks = comms["window"].get_size()
    sides = [
        Side(name, comm, torch.zeros(count), torch.zeros(count // ranks))
        for name, comm in comms.items()
    ]
    shared = sides[-1]
    windows = [shared.comm.new_window(each.share_memory_()) for each in (shared.whole, shared.part)]
    for turn in range(ROUNDS + 1):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            times = side.turn(op, seconds / ROUNDS)
            side.times += times if turn > 0 else []  # the first one warms up
    for window in windows:
        window.tensor_deregister()
    return sides


def report(op: str, size_bytes: int, sides: list[Side], json_file: str | None) -> None:
    ranks, staged = sides[0].comm.get_size(), 0.0
    for side in sides:
        p50, p99 = torch.tensor(side.times).quantile(torch.tensor([0.5, 0.99])).tolist()
        staged = staged or p50
        times = f"{p50:9.1f} / {p99:9.1f} us   {p50 / staged:.2f} of staged"
        print(f"{op:22} {ranks} ranks {size_bytes:>9} B {side.name:8} {times}", flush=True)
        if json_file:
            with open(json_file, "a") as file:
                record = {"op": op, "backend": "ctran", "memory": side.name, "bytes": size_bytes}
                record |= {"dtype": "float32", "ranks": ranks}
                record |= {"p50_us": round(p50, 2), "p99_us": round(p99, 2)}
                file.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", default="256K,1M,4M,16M", help="sizes of the whole vector")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each point and side")
    parser.add_argument("--json", help="append one line a point to this file")
    arguments = parser.parse_args()

    def new_comm(name: str, hints: dict[str, str]) -> torchcomms.TorchComm:
        return torchcomms.new_comm(
            "ctran", torch.device("cpu"), name=name, hints=hints, timeout=timedelta(seconds=60)
        )

    default = new_comm("default", {})
    staged = new_comm("staged", {"ctran::single_copy": "false"})
    comms = {"staged": staged, "private": default, "window": default}
    for op in OPERATIONS:
        for text in arguments.bytes.split(","):
            count = parse_size(text) // 4 // default.get_size() * default.get_size()
            sides = measure(op, count, arguments.seconds, comms)
            if default.get_rank() == 0:
                report(op, 4 * count, sides, arguments.json)
    for comm in (default, staged):
        comm.finalize()


if __name__ == "__main__":
    main()
