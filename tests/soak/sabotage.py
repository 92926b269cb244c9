"""Ranks that differ from real ones in a planted way. What the soak runs in them is unchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch
import torchcomms
from torchcomms.soak import process
from torchcomms.soak.device import Device
from torchcomms.soak.process import Role

VICTIM = 1
LEAST = 8  # elements of a tensor that is corrupted
PLANTED = 5  # index of the element


class Corrupting:
    """A communicator before a real one: its sums have one wrong element on one rank."""

    def __init__(self, comm: Any, rank: int) -> None:
        self._comm, self._rank = comm, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def all_reduce(self, tensor: torch.Tensor, *arguments: Any, **more: Any) -> Any:
        work = self._comm.all_reduce(tensor, *arguments, **more)
        if self._rank == VICTIM and tensor.numel() >= LEAST:
            work.wait()
            tensor.view(torch.uint8)[PLANTED * tensor.itemsize] ^= 0x3C
        return work

    def split(self, *arguments: Any) -> Any:
        child = self._comm.split(*arguments)
        return None if child is None else Corrupting(child, self._rank)


def corrupting(connection: Connection, role: Role) -> None:
    new_comm = torchcomms.new_comm
    torchcomms.new_comm = lambda *a, **k: Corrupting(new_comm(*a, **k), role.rank)
    process.run(connection, role)


class Replaying(Device):
    """The host, as if it had streams and graphs: a graph of a body is the body."""

    streams = 3

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def branches(self, numbers: Iterable[int]) -> contextlib.AbstractContextManager[object]:
        assert set(numbers) <= set(range(self.streams))
        return contextlib.nullcontext()

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        return body


def replaying(connection: Connection, role: Role) -> None:
    """Steps are replayed, as on a device that has graphs."""
    traits_of = process.traits_of
    process.traits_of = lambda *a: replace(
        traits_of(*a), graphs=True, graphs_alone=True, free_order=False
    )
    process.device_of = lambda kind, rank: Replaying()
    process.run(connection, role)
