"""What it takes to make communicators and to split them, ours and torch's, in turns."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
import torchcomms
from torchcomms.bench import World
from torchcomms.bench.world import LIMIT

from benchmarks.gpu.sides import ON, OURS, synchronize

Comm = TypeVar("Comm")

_WARM = 2  # turns


class Side(Protocol[Comm]):
    """One way of making communicators of all ranks."""

    name: str

    def make(self, turn: int) -> Comm: ...
    def split(self, parent: Comm, turn: int) -> Comm: ...
    def all_reduce(self, comm: Comm, tensor: torch.Tensor) -> None: ...
    def close(self, comm: Comm) -> None: ...


class Ours:
    name = OURS

    def __init__(self, world: World, device: torch.device) -> None:
        self._world, self._device = world, device

    def make(self, turn: int) -> torchcomms.TorchComm:
        store = self._world.store_of(self.name)
        return torchcomms.new_comm(
            OURS, self._device, name=f"start_{turn}", timeout=LIMIT, store=store
        )

    def split(self, parent: torchcomms.TorchComm, turn: int) -> torchcomms.TorchComm:
        child = parent.split(list(range(self._world.size)), f"start_{turn}_child")
        assert child is not None
        return child

    def all_reduce(self, comm: torchcomms.TorchComm, tensor: torch.Tensor) -> None:
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)

    def close(self, comm: torchcomms.TorchComm) -> None:
        comm.finalize()


class Torchs:
    def __init__(self, world: World, device: torch.device) -> None:
        self._world, self._device = world, device
        self.name = ON[device.type].baseline

    def make(self, turn: int) -> dist.ProcessGroup:
        dist.init_process_group(
            ON[self._device.type].torchs,
            store=self._world.store_of(self.name),
            rank=self._world.rank,
            world_size=self._world.size,
            timeout=LIMIT,
            device_id=None if self._device.type == "cpu" else self._device,
        )
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def split(self, parent: dist.ProcessGroup, turn: int) -> dist.ProcessGroup:
        # Of NCCL bound to its device this is a split.
        return dist.new_group(list(range(self._world.size)))

    def all_reduce(self, comm: dist.ProcessGroup, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=comm)

    def close(self, comm: dist.ProcessGroup) -> None:
        dist.destroy_process_group(comm)


def measure(world: World, device: torch.device, rounds: int) -> dict[str, dict[str, float]]:
    """By side: milliseconds until a communicator is made, and until its first all_reduce is done,
    and the same of a split of it; medians of the slowest rank. On GPUs also `split_mib`: the memory
    of the device that went with the split, on the rank where most did.

    Each process has made two of each before anything counts: until then memory that is kept for
    the library is touched anew. Collective; the same on all ranks.
    """
    tensor = torch.ones(256, device=device)
    sides: list[Side[Any]] = [Ours(world, device), Torchs(world, device)]
    result = {}
    found: dict[str, dict[str, list[float]]] = {side.name: defaultdict(list) for side in sides}
    for turn in range(rounds + _WARM):
        for side in sides if turn % 2 else reversed(sides):
            for what, value in _turn(side, world, device, tensor, turn).items():
                found[side.name][what] += [value] if turn >= _WARM else []
    for side in sides:
        values = found[side.name]
        own = torch.tensor([[round(each * 1e6) for each in row] for row in values.values()])
        worst = world.gather(own.flatten()).amax(dim=0).reshape(own.shape).tolist()
        result[side.name] = {
            what: statistics.median(row) / 1e6 for what, row in zip(values, worst, strict=True)
        }
    return result


def _turn(
    side: Side[Comm], world: World, device: torch.device, tensor: torch.Tensor, turn: int
) -> dict[str, float]:
    """Makes, uses, splits, uses, closes."""
    took: dict[str, float] = {}

    def timed(what: str, make: Callable[[], Comm]) -> Comm:
        world.barrier()
        begin = time.perf_counter()
        comm = make()
        took[f"{what}_made_ms"] = (time.perf_counter() - begin) * 1e3
        tensor.fill_(1)
        side.all_reduce(comm, tensor)
        synchronize(device)
        took[f"{what}_ready_ms"] = (time.perf_counter() - begin) * 1e3
        assert bool((tensor == world.size).all()), f"{side.name}: wrong values after {what}"
        return comm

    parent = timed("new", lambda: side.make(turn))
    before = _free_bytes(device)
    child = timed("split", lambda: side.split(parent, turn))
    after = _free_bytes(device)
    if before is not None and after is not None:
        took["split_mib"] = (before - after) / (1 << 20)
    side.close(child)
    side.close(parent)
    return took


def _free_bytes(device: torch.device) -> int | None:
    """Of the whole device: a rank has it for itself."""
    if device.type == "cpu":
        return None
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info(device)[0]
