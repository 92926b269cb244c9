"""What can be measured: any TorchComm, torch.distributed, symmetric memory, vendor libraries.

torch.distributed and torch's symmetric memory are baselines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.distributed.config

import torchcomms
from torchcomms.bench.exchange import Call, Exchange
from torchcomms.bench.group import Group
from torchcomms.bench.memory import AnyMemory
from torchcomms.bench.plan import BASELINE, RAW, SYMMETRIC, parse_backend
from torchcomms.bench.raw import Raw
from torchcomms.bench.symmetric import Symmetric
from torchcomms.bench.world import LIMIT, World


class Backend(Protocol):
    """One side of a comparison."""

    name: str
    moves_data: bool

    def room(self, numel: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Returns zeroed memory of the backend for one tensor of an exchange, valid until clear().

        None if any memory will do. Collective.
        """

    def clear(self) -> None:
        """Frees the memory of all exchanges, which the caller no longer uses. Collective."""

    def call(self, exchange: Exchange, async_op: bool) -> Call | None:
        """Returns the call that one sample times, or None if the backend lacks the operation.

        Raises NotMeasured if the backend has the operation, but not for this exchange.
        """

    def algorithm(self, op: str, size_bytes: int) -> str:
        """The name of the algorithm for this size, or "default" if the backend does not say."""

    def close(self) -> None: ...


class Communicator:
    """A TorchComm that is made for the measurement."""

    def __init__(self, name: str, world: World, device: torch.device) -> None:
        self.name = name
        backend, hints = parse_backend(name)
        self.moves_data = backend != "fake"
        store = world.store_of(name)
        self._comm = torchcomms.new_comm(
            backend, device, name=f"bench_{name}", timeout=LIMIT, store=store, hints=hints
        )
        self._ranges: dict[str, list[dict[str, Any]]] = self._comm.describe()["algorithms"]
        self._is_registered = hints.get(f"{backend}::registered", "false") != "false"
        self._windows: list[torchcomms.TorchCommWindow] = []

    def room(self, numel: int, dtype: torch.dtype) -> torch.Tensor | None:
        if not self._is_registered:
            return None
        window = self._comm.window_allocate(max(numel * dtype.itemsize, 1))
        self._windows.append(window)
        memory = window.get_tensor()
        assert memory is not None
        return memory.view(torch.uint8)[: numel * dtype.itemsize].view(dtype).zero_()

    def clear(self) -> None:
        for window in self._windows:
            window.tensor_deregister()
        self._windows.clear()

    def call(self, exchange: Exchange, async_op: bool) -> Call | None:
        return exchange.call(self._comm, async_op)

    def algorithm(self, op: str, size_bytes: int) -> str:
        chosen = "default"
        for entry in self._ranges.get(op, ()):
            if entry["bytes_from"] <= size_bytes:
                chosen = entry["algorithm"]
        return chosen

    def close(self) -> None:
        self._comm.finalize()


class Baseline(AnyMemory):
    """A process group of torch.distributed, used through its public functions."""

    moves_data = True

    def __init__(self, name: str, world: World, device: torch.device) -> None:
        self.name = name
        self._owner = Group(name.removeprefix(BASELINE), name, world, device)

    def call(self, exchange: Exchange, async_op: bool) -> Call | None:
        bound = exchange.call_c10d(self._owner.group, async_op)
        if bound is not None:
            try:
                bound()
            except RuntimeError as error:  # c10d states its capabilities only by this error
                if "does not support" not in str(error):
                    raise
                return None
        return bound

    def algorithm(self, op: str, size_bytes: int) -> str:
        return "default"

    def close(self) -> None:
        self._owner.close()


def _open(name: str, world: World, device: torch.device) -> Backend:
    if name.startswith(BASELINE):
        return Baseline(name, world, device)
    if name.startswith(RAW):
        return Raw(name, world, device)
    if name.startswith(SYMMETRIC):
        return Symmetric(name, world, device)
    return Communicator(name, world, device)


@contextmanager
def opened(names: Sequence[str], world: World, device: torch.device) -> Iterator[list[Backend]]:
    """Opens the backends in order, the same on all ranks, and closes them in reverse order."""
    routed = getattr(torch.distributed.config, "use_torchcomms", False)
    if routed:  # otherwise the baseline would run on torchcomms itself
        torch.distributed.config.use_torchcomms = False
    backends: list[Backend] = []
    try:
        for name in names:
            backends.append(_open(name, world, device))
        yield backends
    finally:
        if routed:
            torch.distributed.config.use_torchcomms = True
    # After a failure they are not closed; the process exits soon.
    for backend in reversed(backends):
        backend.close()
