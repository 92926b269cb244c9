"""torch's symmetric memory as a baseline: kernels that read buffers mapped by all ranks of a host.

The module uses private functions of torch; no other module does so for this.
"""

from __future__ import annotations

import os
import socket
import zlib
from functools import partial
from typing import Any

import torch

from torchcomms.bench.errors import BenchError, NotMeasured
from torchcomms.bench.exchange import Call, Exchange
from torchcomms.bench.group import Group
from torchcomms.bench.memory import AnyMemory
from torchcomms.bench.operations import AllGatherSingle, AllReduce, ReduceScatterSingle
from torchcomms.bench.plan import SYMMETRIC
from torchcomms.bench.world import World

_SUMMED = (torch.float32, torch.bfloat16)  # the dtypes that torch's kernels add
_UNIT = 4  # bytes; sizes must be multiples of it
_TWO_SHOT_RANKS = (2, 4, 8)
_NO_MULTICAST = "TORCH_SYMM_MEM_DISABLE_MULTICAST"
_LEAST_BYTES = 32 << 20  # so that growing sizes rarely need a new mapping


class Symmetric(AnyMemory):
    """The backends `symm_mem:one_shot` and `symm_mem:two_shot`: two methods of all_reduce.

    Gathers and scatters are equal in both: torch's low-contention ones. NVLink multicast is off,
    unless the environment says otherwise.

    Inputs are in symmetric memory, which replaces the buffers of the exchange. Pure outputs are in
    ordinary memory. Synchronous and asynchronous calls are equal: both enqueue.
    """

    moves_data = True

    def __init__(self, name: str, world: World, device: torch.device) -> None:
        self.name = name
        self._way = name.removeprefix(SYMMETRIC)
        self._ranks = world.size
        _check_reach(name, world, device)
        self._owner = Group("nccl", name, world, device)
        self._group: Any = self._owner.group.group_name
        self._memory: torch.Tensor | None = None
        self._mapping: Any = None  # must live as long as the memory

    def call(self, exchange: Exchange, async_op: bool) -> Call | None:
        """Raises NotMeasured for a dtype, size or number of ranks that torch does not support."""
        if isinstance(exchange, AllReduce):
            return self._all_reduce(exchange)
        if isinstance(exchange, AllGatherSingle):
            exchange.input = self._shared(exchange.input)
            gather = torch.ops.symm_mem._low_contention_all_gather.default
            return self._into_new_output(exchange, partial(gather, exchange.input, self._group))
        if isinstance(exchange, ReduceScatterSingle):
            exchange.input = self._shared(exchange.input)
            scatter = torch.ops.symm_mem._low_contention_reduce_scatter.default
            call = partial(scatter, exchange.input, "sum", self._group)
            return self._into_new_output(exchange, call)
        return None

    def _all_reduce(self, exchange: AllReduce) -> Call:
        why = self._why_not(exchange.buffer)
        if why is not None:
            raise NotMeasured(f"{self.name} has no {exchange.name} {why}: not measured")
        exchange.buffer = self._shared(exchange.buffer)
        if self._way == "two_shot":
            exchange.output = exchange.buffer
            in_place = torch.ops.symm_mem.two_shot_all_reduce_.default
            return partial(in_place, exchange.buffer, "sum", self._group)
        # Peers still read the input while the output is written.
        exchange.output = torch.zeros_like(exchange.buffer)
        out = torch.ops.symm_mem.one_shot_all_reduce_out.default
        return partial(out, exchange.buffer, "sum", self._group, exchange.output)

    def _why_not(self, buffer: torch.Tensor) -> str | None:
        if buffer.dtype not in _SUMMED:
            dtype, *allowed = (str(t).removeprefix("torch.") for t in (buffer.dtype, *_SUMMED))
            return f"of {dtype}, only of {' and '.join(allowed)}"
        if buffer.nbytes % _UNIT:
            return f"of {buffer.nbytes} B, only of multiples of {_UNIT} B"
        if self._way == "two_shot" and self._ranks not in _TWO_SHOT_RANKS:
            return f"of {self._ranks} ranks, only of {', '.join(map(str, _TWO_SHOT_RANKS))}"
        return None

    def _shared(self, buffer: torch.Tensor) -> torch.Tensor:
        """Returns zeros of the buffer's size in symmetric memory, reused between exchanges.

        Collective.
        """
        from torch.distributed import _symmetric_memory

        # Otherwise torch also maps the memory for multicast, which none of these operations uses.
        os.environ.setdefault(_NO_MULTICAST, "1")
        if self._memory is None or self._memory.numel() < buffer.numel():
            self._mapping = self._memory = None
            size_bytes = max(1 << (buffer.nbytes - 1).bit_length(), _LEAST_BYTES)
            self._memory = _symmetric_memory.empty(
                size_bytes // buffer.itemsize, dtype=buffer.dtype, device=buffer.device
            )
            self._mapping = _symmetric_memory.rendezvous(self._memory, self._group)
        return self._memory[: buffer.numel()].zero_()

    @staticmethod
    def _into_new_output(exchange: AllGatherSingle | ReduceScatterSingle, start: Call) -> Call:
        """Binds an operation that runs on a stream of torch and allocates its output."""
        wait = torch.ops._c10d_functional.wait_tensor.default

        def start_and_wait() -> None:
            exchange.output = wait(start())

        return start_and_wait

    def algorithm(self, op: str, size_bytes: int) -> str:
        return self._way if op == AllReduce.name else "low_contention"

    def close(self) -> None:
        self._mapping = self._memory = None
        self._owner.close()


def _check_reach(name: str, world: World, device: torch.device) -> None:
    """Raises BenchError unless each rank has its own GPU of one host, with access to all others."""
    host = zlib.crc32(socket.gethostname().encode())
    own_location = torch.tensor([host, device.index or 0])
    places = world.gather(own_location).tolist()
    if len({where for where, _ in places}) > 1:
        raise BenchError(f"{name} needs all ranks on one host")
    indices = [index for _, index in places]
    if len(set(indices)) < world.size:
        raise BenchError(
            f"{name} needs a GPU for each rank: {world.size} ranks have {len(set(indices))}"
        )
    for peer in indices:
        if peer != device.index and not torch.cuda.can_device_access_peer(device, peer):
            raise BenchError(f"{name}: {device} cannot access the memory of cuda:{peer}")
