"""A TorchComm, driven as a cell needs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Store

import torchcomms
from torchcomms.drill.buffers import Buffers, Shape
from torchcomms.drill.side import Pending

_START_UP = "TORCHCOMM_INIT_TIMEOUT_SECONDS"


class Ours:
    """A communicator of this library; `comm` is the TorchComm.

    Option `rendezvous_s` is the timeout of its start-up, if it differs from that of its operations.
    """

    def __init__(
        self,
        backend: str,
        name: str,
        store: Store | None,
        place: tuple[int, int],
        limit_s: float,
        **options: Any,  # noqa: ANN401
    ) -> None:
        rendezvous_s = options.pop("rendezvous_s", None)
        os.environ.update(TORCHCOMM_RANK=str(place[0]), TORCHCOMM_SIZE=str(place[1]))
        os.environ.pop(_START_UP, None)
        if rendezvous_s is not None:
            os.environ[_START_UP] = str(rendezvous_s)
        if store is not None:
            options["store"] = store
        limit = timedelta(seconds=limit_s)
        device = torch.device("cpu")
        self._take(torchcomms.new_comm(backend, device, name=name, timeout=limit, **options))

    def _take(self, comm: torchcomms.TorchComm) -> None:
        self.comm = comm
        self.name = comm.get_name()
        # Before reconfigure(), a communicator has no members, and may have no rank.
        self.rank, self.size = (comm.get_rank(), comm.get_size()) if comm.get_ranks() else (-1, 0)

    def start(
        self,
        op: str,
        shape: Shape = Shape(),  # noqa: B008
        *,
        async_op: bool = True,
        limit_s: float | None = None,
    ) -> Pending:
        buffers = Buffers(op, self.rank, self.size, shape)
        work = getattr(self.comm, op)(*_ARGUMENTS[op](buffers), async_op, timeout=limit_s)
        return Pending(work.wait, buffers)

    def split(self, ranks: Sequence[int], limit_s: float) -> Ours | None:
        child = self.comm.split(list(ranks), timeout=float(limit_s))
        if child is None:
            return None
        side = Ours.__new__(Ours)
        side._take(child)
        return side

    def finalize(self) -> None:
        self.comm.finalize()


def _reduction(b: Buffers) -> torchcomms.ReduceOp:
    op: torchcomms.ReduceOp = getattr(torchcomms.ReduceOp, b.shape.reduce_op.upper())
    return op


_ARGUMENTS: dict[str, Callable[[Buffers], list[Any]]] = {
    "barrier": lambda b: [],
    "all_reduce": lambda b: [b.input, _reduction(b)],
    "broadcast": lambda b: [b.input, b.shape.root],
    "reduce": lambda b: [b.input, b.shape.root, _reduction(b)],
    "all_gather_single": lambda b: [b.output, b.input],
    "reduce_scatter_single": lambda b: [b.output, b.input, _reduction(b)],
    "all_to_all_single": lambda b: [b.output, b.input],
    "gather": lambda b: [b.slots(b.output), b.input, b.shape.root],
    "scatter": lambda b: [b.output, b.slots(b.input), b.shape.root],
    "send": lambda b: [b.input, b.shape.root],
    "recv": lambda b: [b.output, b.shape.root],
}
