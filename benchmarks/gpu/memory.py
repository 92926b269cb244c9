"""What communicators of `ctran` take of each GPU, by what the driver says is free.

    torchrun --nproc-per-node 4 -m benchmarks.gpu.memory [--json FILE]

One process a GPU, which nobody else uses. Rank 0 prints the most of any rank. Each process has
made, used and ended a communicator before anything counts, so that its kernels are loaded.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torchcomms
from torchcomms import ReduceOp

SMALL, LARGE = 256, 16 << 20  # elements of float32


def free_mib() -> float:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0] / (1 << 20)


def reduce(comm: torchcomms.TorchComm, tensor: torch.Tensor) -> None:
    tensor.fill_(1)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    assert bool((tensor == comm.get_size()).all()), "wrong values"


def measure(device: torch.device) -> dict[str, float]:
    """MiB of the device, by what was made."""
    small, large = (torch.ones(count, device=device) for count in (SMALL, LARGE))
    warm = torchcomms.new_comm("ctran", device, name="warm")
    for tensor in (small, large):
        reduce(warm, tensor)
    warm.finalize()
    del warm
    cpu_comm = torchcomms.new_comm("ctran", torch.device("cpu"), name="meeting")
    taken = {}

    def after(what: str, make: Callable[[], torchcomms.TorchComm]) -> torchcomms.TorchComm:
        cpu_comm.barrier(False)  # where a communicator of one rank grows, so does it elsewhere
        before = free_mib()
        comm = make()
        reduce(comm, small)
        cpu_comm.barrier(False)
        taken[what] = before - free_mib()
        return comm

    first = after("the first communicator", lambda: torchcomms.new_comm("ctran", device, "first"))
    further = after("a further one", lambda: torchcomms.new_comm("ctran", device, "further"))
    everybody = list(range(first.get_size()))
    child = after("a split of the first", lambda: first.split(everybody, "child"))
    alone = after("one of a rank alone", lambda: first.split([first.get_rank()], "alone"))

    def use() -> torchcomms.TorchComm:
        reduce(further, large)
        return further

    after("the further one's first large all_reduce", use)
    for comm in (alone, child, further, first, cpu_comm):
        comm.finalize()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path, help="write the lines here")
    given = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    taken = measure(device)
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), name="results")
    most = torch.tensor(list(taken.values()))
    comm.all_reduce(most, ReduceOp.MAX, False)
    rank, ranks = comm.get_rank(), comm.get_size()
    comm.finalize()
    if rank != 0:
        return
    rows = [
        {"measure": "memory_mib", "what": what, "mib": mib, "ranks": ranks}
        for what, mib in zip(taken, most.tolist(), strict=True)
    ]
    print(f"MiB of each GPU, {ranks} ranks, {torch.cuda.get_device_name(device)}")
    for row in rows:
        print(f"{row['mib']:10.1f}  {row['what']}")
    if given.json:
        given.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
