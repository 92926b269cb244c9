"""Measures a vendor library without torchcomms, as the baseline of a backend that uses it."""

from __future__ import annotations

from functools import partial

import torch

from torchcomms import _vendor
from torchcomms._dtype import dtype_name
from torchcomms.bench.errors import BenchError
from torchcomms.bench.exchange import Call, Exchange
from torchcomms.bench.memory import AnyMemory
from torchcomms.bench.plan import RAW
from torchcomms.bench.world import World

_ID = "raw_id"


class Raw(AnyMemory):
    """One communicator of the library.

    Synchronous and asynchronous calls are equal: both enqueue.
    """

    moves_data = True

    def __init__(self, name: str, world: World, device: torch.device) -> None:
        self.name = name
        library = _vendor.Library(name.removeprefix(RAW))
        if library.on_host_memory != (device.type == "cpu"):
            works = "CPU" if library.on_host_memory else "GPU"
            raise BenchError(f"{name}: {library.path} works on {works} tensors, not on {device}")
        store = world.store_of(name)
        if world.rank == 0:
            store.set(_ID, library.make_id().hex())
        unique_id = bytes.fromhex(store.get(_ID).decode())
        self._comm = _vendor.RawCommunicator(library, world.size, world.rank, unique_id)
        self._device = device

    def call(self, exchange: Exchange, async_op: bool) -> Call | None:
        """Binds the call to the stream that is current now."""
        bound = self._bound(exchange)
        return None if bound is None else partial(self._comm.enqueue, *bound)

    def enqueue_us(self, exchange: Exchange, calls: int) -> float:
        """The time in us that one of `calls` calls in a row takes on the host, from C++.

        Raises BenchError for an operation that cannot be measured raw.
        """
        bound = self._bound(exchange)
        if bound is None:
            raise BenchError(f"{self.name} has no {exchange.name}")
        return self._comm.enqueue_many(*bound, calls)

    def _bound(
        self, exchange: Exchange
    ) -> tuple[_vendor.RawCommunicator.Collective, _vendor.RawCommunicator.Arguments] | None:
        raw = exchange.call_raw()
        if raw is None:
            return None
        stream = 0
        if self._device.type != "cpu":
            stream = torch.cuda.current_stream(self._device).cuda_stream
        arguments = _vendor.RawCommunicator.Arguments(
            raw.input.data_ptr(),
            raw.output.data_ptr(),
            raw.count,
            dtype_name(raw.input.dtype),
            stream,
            raw.root,
        )
        return getattr(_vendor.RawCommunicator.Collective, raw.collective), arguments

    def algorithm(self, op: str, size_bytes: int) -> str:
        return "default"

    def close(self) -> None:
        self._comm.close()
