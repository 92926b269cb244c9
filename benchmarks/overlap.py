"""What asynchronous communication costs the computation beside it, and what waiting costs.

torchrun --nproc-per-node 2 benchmarks/overlap.py [--bytes 16M] [--rounds 30]

Each round, on every rank: matrix products alone, one all_reduce alone, and the same all_reduce
started before the same products and waited for after them. `hidden` is the part of the all_reduce
that the products did not feel; 1 needs a core that is free. Backends take turns; times are the
slowest rank's medians and 99th percentiles in ms. Then the processor time and the wake-ups of a
process whose communicators have nothing to do, and while it waits for a message that does not come.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
import torchcomms
from torchcomms.bench.sizes import parse_size

CPU = torch.device("cpu")
PRODUCTS, EDGE = 12, 384
IDLE_S = 2.0


@dataclass
class Side:
    """An all_reduce that can be left alone; `start` returns what is to be waited for."""

    name: str
    comm: torchcomms.TorchComm | None
    times: dict[str, list[float]] = field(
        default_factory=lambda: {"products": [], "all_reduce": [], "both": []}
    )

    def start(self, data: torch.Tensor) -> torchcomms.TorchWork | dist.Work:
        if self.comm is None:
            work = dist.all_reduce(data, op=dist.ReduceOp.MAX, async_op=True)
            assert work is not None
            return work
        return self.comm.all_reduce(data, torchcomms.ReduceOp.MAX, True)

    def round(self, data: torch.Tensor, matrix: torch.Tensor) -> None:
        def multiply() -> None:
            for _ in range(PRODUCTS):
                torch.mm(matrix, matrix)

        def both() -> None:
            work = self.start(data)
            multiply()
            work.wait()

        parts = {"products": multiply, "all_reduce": lambda: self.start(data).wait(), "both": both}
        for name, part in parts.items():
            data.fill_(dist.get_rank())
            dist.barrier()
            begin = time.perf_counter()
            part()
            self.times[name].append((time.perf_counter() - begin) * 1e3)
            if name != "products":
                assert bool((data == dist.get_world_size() - 1).all()), f"{self.name}: wrong values"

    def slowest(self) -> dict[str, tuple[float, float]]:
        """Of each part, median and 99th percentile of the slowest rank."""
        result = {}
        for name, times in self.times.items():
            worst = torch.tensor(times[len(times) // 10 :])  # the first ones warm up
            dist.all_reduce(worst, op=dist.ReduceOp.MAX)
            p50, p99 = worst.quantile(torch.tensor([0.5, 0.99])).tolist()
            result[name] = (p50, p99)
        return result


def idle_usage(what: str) -> dict[str, float | str]:
    """What this process uses, all its threads together, while nobody calls anything."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(IDLE_S)
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    woken = after.ru_nvcsw - before.ru_nvcsw
    return {"idle": what, "cpu_share": used / IDLE_S, "wake_ups_per_s": woken / IDLE_S}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", default="16M", help="of the all_reduce")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", help="append the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    comm = torchcomms.new_comm("ctran", CPU, name="overlap", timeout=timedelta(seconds=60))
    sides = [Side("ctran", comm), Side("c10d:gloo", None)]
    data, matrix = torch.zeros(parse_size(arguments.bytes) // 4), torch.ones(EDGE, EDGE)
    for number in range(arguments.rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            side.round(data, matrix)
    records: list[dict[str, object]] = []
    for side in sides:
        parts = side.slowest()
        alone, both = parts["products"][0], parts["both"][0]
        hidden = 1 - (both - alone) / parts["all_reduce"][0]
        text = "   ".join(
            f"{name} {p50:7.2f} / {p99:7.2f} ms" for name, (p50, p99) in parts.items()
        )
        if rank == 0:
            print(f"{side.name:10} {text}   hidden {hidden:5.2f}")
        record = {
            "backend": side.name,
            "bytes": parse_size(arguments.bytes),
            "hidden": round(hidden, 3),
        }
        for name, (p50, p99) in parts.items():
            record |= {f"{name}_p50_ms": round(p50, 3), f"{name}_p99_ms": round(p99, 3)}
        records.append(record)
    dist.destroy_process_group()  # its threads would be counted, too

    idle = [idle_usage("nothing under way")]
    waiting = torch.zeros(1)
    if rank == 0:
        work = comm.recv(waiting, 1, True)
    idle.append(idle_usage("a receive under way"))
    if rank == 1:
        comm.send(torch.ones(1), 0, False)
    else:
        work.wait()
    for record in idle:
        if rank == 0:
            shares = (
                f"{record['cpu_share']:.2%} of a core, {record['wake_ups_per_s']:.1f} wake-ups/s"
            )
            print(f"{record['idle']:20} {shares}")
        records.append(record | {"backend": "ctran"})
    if arguments.json and rank == 0:
        with open(arguments.json, "a") as file:
            for record in records:
                file.write(json.dumps(record | {"ranks": int(os.environ["WORLD_SIZE"])}) + "\n")
    comm.finalize()


if __name__ == "__main__":
    main()
