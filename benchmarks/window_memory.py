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
from datetime import timedelta

import torch

import torchcomms

ROUNDS = 20
OPERATIONS = ("all_reduce", "reduce_scatter_single", "all_gather_single", "broadcast")


def size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", default="256K,1M,4M,16M", help="sizes of the whole vector")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each point and side")
    parser.add_argument("--json", help="append one line a point to this file")
    arguments = parser.parse_args()
    cpu = torch.device("cpu")

    def new_comm(name: str, hints: dict[str, str]) -> torchcomms.TorchComm:
        return torchcomms.new_comm(
            "ctran", cpu, name=name, hints=hints, timeout=timedelta(seconds=60)
        )

    default = new_comm("default", {})
    staged = new_comm("staged", {"ctran::single_copy": "false"})
    rank, ranks = default.get_rank(), default.get_size()
    for op in OPERATIONS:
        for text in arguments.bytes.split(","):
            count = size(text) // 4 // ranks * ranks
            sides = {}
            windows = []
            for side, comm in (("staged", staged), ("private", default), ("window", default)):
                whole, part = torch.zeros(count), torch.zeros(count // ranks)
                if side == "window":
                    whole, part = whole.share_memory_(), part.share_memory_()
                    windows = [comm.new_window(whole), comm.new_window(part)]
                sides[side] = (comm, whole, part, call_of(comm, op, whole, part))
            times: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(ROUNDS + 1):
                for side in sorted(sides, reverse=turn % 2 == 0):
                    comm, whole, part, call = sides[side]
                    whole.fill_(rank)
                    part.fill_(rank)
                    comm.barrier(async_op=False)
                    begin = time.perf_counter()
                    call()
                    once = torch.tensor([time.perf_counter() - begin])
                    comm.all_reduce(once, torchcomms.ReduceOp.MAX, async_op=False)
                    calls = max(2, min(500, int(arguments.seconds / ROUNDS / float(once))))
                    taken = []
                    for _ in range(calls):
                        begin = time.perf_counter()
                        call()
                        taken.append((time.perf_counter() - begin) * 1e6)
                    check(op, rank, ranks, whole, part)
                    worst = torch.tensor(taken)
                    comm.all_reduce(worst, torchcomms.ReduceOp.MAX, async_op=False)
                    if turn > 0:  # the first one warms up
                        times[side] += worst.tolist()
            for window in windows:
                window.tensor_deregister()
            if rank != 0:
                continue
            quantiles = {}
            for side, taken in times.items():
                p50, p99 = torch.tensor(taken).quantile(torch.tensor([0.5, 0.99])).tolist()
                quantiles[side] = p50
                print(
                    f"{op:22} {ranks} ranks {text:>5} {side:8} {p50:9.1f} / {p99:9.1f} us", end=""
                )
                print(f"   {p50 / quantiles['staged']:.2f} of staged", flush=True)
                if arguments.json:
                    with open(arguments.json, "a") as file:
                        record = {"op": op, "backend": "ctran", "memory": side, "bytes": size(text)}
                        record |= {"dtype": "float32", "ranks": ranks}
                        record |= {"p50_us": round(p50, 2), "p99_us": round(p99, 2)}
                        file.write(json.dumps(record) + "\n")
    for comm in (default, staged):
        comm.finalize()


if __name__ == "__main__":
    main()
