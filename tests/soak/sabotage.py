"""Ranks whose library goes wrong in a planted way. What the soak runs in them is unchanged."""

from __future__ import annotations

import contextlib
import os
import threading
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

# instead(comm, name, call, arguments): what happens where the soak calls a communicator's method
Instead = Callable[[Any, str, Callable[..., Any], tuple[Any, ...]], Any]


class Done:
    """The work of a call that was not made."""

    def wait(self) -> None: ...

    def is_completed(self) -> bool:
        return True


class Sabotaged:
    """A communicator in front of a real one."""

    def __init__(self, comm: Any, instead: Instead) -> None:
        self._comm, self._instead = comm, instead

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._comm, name)
        if not callable(method):
            return method
        return lambda *arguments: self._instead(self._comm, name, method, arguments)

    def split(self, *arguments: Any) -> Any:
        child = self._comm.split(*arguments)
        return None if child is None else Sabotaged(child, self._instead)


def _run(connection: Connection, role: Role, instead: Instead) -> None:
    new_comm = torchcomms.new_comm
    torchcomms.new_comm = lambda *a, **k: Sabotaged(new_comm(*a, **k), instead)
    process.run(connection, role)


def corrupting(connection: Connection, role: Role) -> None:
    """One rank's sums have one wrong element."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        work = call(*arguments)
        if name == "all_reduce" and role.rank == VICTIM and arguments[0].numel() >= LEAST:
            work.wait()
            arguments[0].view(torch.uint8)[PLANTED * arguments[0].itemsize] ^= 0x3C
        return work

    _run(connection, role, instead)


def overrunning(connection: Connection, role: Role) -> None:
    """One rank's broadcasts write an element too much."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        work = call(*arguments)
        if name == "broadcast" and role.rank == VICTIM and arguments[0].numel() >= LEAST:
            work.wait()
            tensor = arguments[0]
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            behind = tensor.storage_offset() + tensor.numel()
            whole[behind : behind + 1].view(torch.uint8).fill_(0)
        return work

    _run(connection, role, instead)


def forgetful(connection: Connection, role: Role) -> None:
    """One rank leaves out a barrier."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        left_out = name == "barrier" and role.rank == VICTIM and comm.get_size() > 1
        return Done() if left_out else call(*arguments)

    _run(connection, role, instead)


def idle(connection: Connection, role: Role) -> None:
    """One rank's all_reduce does nothing at all, and says that it is done."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        left_out = name == "gather_single" and comm.get_rank() == arguments[2]
        return Done() if left_out and arguments[0].numel() >= LEAST else call(*arguments)

    _run(connection, role, instead)


def stuck(connection: Connection, role: Role) -> None:
    """A call of one rank never returns, nor do the limits of the library help."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "all_reduce":
            threading.Event().wait()
        return call(*arguments)

    _run(connection, role, instead)


def raising(connection: Connection, role: Role) -> None:
    """A call of one rank raises."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "scatter" and role.rank == VICTIM:
            raise RuntimeError("the planted error")
        return call(*arguments)

    _run(connection, role, instead)


def dying(connection: Connection, role: Role) -> None:
    """The process of one rank ends in a call."""

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "all_gather" and role.rank == VICTIM:
            print("the last words", flush=True)
            os._exit(7)
        return call(*arguments)

    _run(connection, role, instead)


class Replaying(Device):
    """The host, as if it had streams and graphs: a graph of a body is the body."""

    streams = 3

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.replays = False

    def branches(self, numbers: Iterable[int]) -> contextlib.AbstractContextManager[object]:
        assert set(numbers) <= set(range(self.streams))
        return contextlib.nullcontext()

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.replays = True
            try:
                body()
            finally:
                self.replays = False

        return replay


def replaying(connection: Connection, role: Role) -> None:
    """Steps are replayed, as on a device that has graphs."""
    _replay(connection, role, lambda comm, name, call, arguments: call(*arguments), Replaying())


def stale(connection: Connection, role: Role) -> None:
    """A broadcast in a graph gives what it gave when it was captured."""
    device, seen = Replaying(), dict[int, torch.Tensor]()

    def instead(comm: Any, name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        work = call(*arguments)
        if name == "broadcast" and comm.get_rank() == VICTIM and arguments[0].numel() >= LEAST:
            work.wait()
            if device.replays:
                arguments[0].copy_(seen[arguments[0].data_ptr()])
            else:
                seen[arguments[0].data_ptr()] = arguments[0].clone()
        return work

    _replay(connection, role, instead, device)


def _replay(connection: Connection, role: Role, instead: Instead, device: Device) -> None:
    traits_of = process.traits_of
    process.traits_of = lambda *a: replace(
        traits_of(*a), graphs=True, graphs_alone=True, free_order=False
    )
    process.device_of = lambda kind, rank: device
    _run(connection, role, instead)
