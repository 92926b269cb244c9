"""How long a put with its signal takes, beside a message of NCCL, in one run.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.gpu.windows [--json FILE]

Every rank puts to the next one, signals, and waits for the one before; the other side sends and
receives in one group. Both are captured with so many turns that a replay takes a while, take turns,
and have their values checked. The figure is of one turn, the slowest rank's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
import torchcomms
from torchcomms import ReduceOp, _output

SIZES = tuple(1 << power for power in range(10, 29, 2))
TURNS, ROUNDS = 50, 30


def graph_of(body: Callable[[], None]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path, help="write all lines here")
    given = parser.parse_args()
    _output.prepare(given.json)
    return given


def main() -> None:
    given = arguments()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.set_default_device(device)
    ours = torchcomms.new_comm("ctran", device, name="ours")
    nccl = torchcomms.new_comm("nccl", device, name="nccl")
    following, before = (rank + 1) % size, (rank - 1) % size
    lines: list[dict[str, object]] = []
    for size_bytes in SIZES:
        turns = max(4, min(TURNS, (256 << 20) // size_bytes))
        data = torch.full((size_bytes // 4,), float(rank))
        window = ours.window_allocate(size_bytes)
        mine = window.get_tensor().view(torch.float32)
        received = torch.zeros_like(data)

        def put(
            data: torch.Tensor = data,
            window: torchcomms.TorchCommWindow = window,
            turns: int = turns,
        ) -> None:
            for _ in range(turns):
                window.put(data, following, 0, False)
                window.signal(following, False)
                window.wait_signal(before, False)

        def message(
            data: torch.Tensor = data, received: torch.Tensor = received, turns: int = turns
        ) -> None:
            for _ in range(turns):
                batch = nccl.batch_op_create()
                batch.send(data, following)
                batch.recv(received, before)
                batch.issue(False)

        graphs = {"put": graph_of(put), "nccl": graph_of(message)}
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(ROUNDS):
            for name, graph in graphs.items():
                nccl.barrier(False)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                took = torch.tensor([begin.elapsed_time(end) * 1000 / turns])
                nccl.all_reduce(took, ReduceOp.MAX, False)
                times[name].append(took.item())
        for whose, got in (("put", mine), ("nccl", received)):
            assert bool((got == before).all()), f"{whose}: wrong values at {size_bytes} bytes"
        del graphs
        torch.cuda.synchronize()
        nccl.barrier(False)
        window.tensor_deregister()
        found = {
            name: (statistics.median(all_times), statistics.quantiles(all_times, n=100)[98])
            for name, all_times in times.items()
        }
        lines.append({"bytes": size_bytes, "ranks": size, "us of p50 and p99": found})
        if rank == 0:
            (put_p50, put_p99), (nccl_p50, nccl_p99) = found["put"], found["nccl"]
            print(
                f"{size_bytes:>10} bytes: put+signal {put_p50:8.2f} us (p99 {put_p99:.2f}), "
                f"nccl send+recv {nccl_p50:8.2f} us (p99 {nccl_p99:.2f})",
                flush=True,
            )
    if rank == 0 and given.json:
        _output.write(given.json, "".join(json.dumps(line) + "\n" for line in lines))
    ours.finalize()
    nccl.finalize()


if __name__ == "__main__":
    main()
