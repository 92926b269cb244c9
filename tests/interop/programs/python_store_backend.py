"""A backend in Python that can do what DistributedDataParallel asks for, in two manners.

`AtOnce` does an operation in the call; `Later` hands out an object whose wait() does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from python_backend import StoreBackend  # of the examples
from torchcomms import ReduceOp


class Pending:
    """The rest of an operation: wait() does it."""

    def __init__(self, rest: Callable[[], None]) -> None:
        self._rest = rest

    def wait(self) -> None:
        self._rest()


class AtOnce(StoreBackend):
    """The example's, with more operations, on tensors of any layout."""

    def finalize(self) -> None:
        """Rank 0 serves the store: it goes last."""
        if self._store.add("gone", 1) == self._size:
            self._store.set("all gone", "yes")
        if self._rank == 0:
            self._store.wait(["all gone"])

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp, async_op: bool) -> Pending | None:
        if op != ReduceOp.SUM:
            raise ValueError(f"the store backend can only SUM, not {op.type.name}")
        parts = self._exchange(tensor)
        return self._end(lambda: tensor.copy_(sum(parts)))

    def broadcast(self, tensor: torch.Tensor, root: int, async_op: bool) -> Pending | None:
        parts = self._exchange(tensor)
        return self._end(lambda: tensor.copy_(list(parts)[root]))

    def all_gather(
        self, tensor_list: list[torch.Tensor], tensor: torch.Tensor, async_op: bool
    ) -> Pending | None:
        parts = self._exchange(tensor)
        return self._end(
            lambda: [out.copy_(part) for out, part in zip(tensor_list, parts, strict=True)]
        )

    def barrier(self, async_op: bool) -> Pending | None:
        parts = self._exchange(torch.zeros(1))
        return self._end(lambda: list(parts))

    def _exchange(self, tensor: torch.Tensor) -> Iterator[torch.Tensor]:
        """Publishes now; the result reads everybody's, in rank order, and waits for them."""
        self._operations += 1
        number, data = self._operations, tensor.detach()
        self._store.set(f"{number}/{self._rank}", data.contiguous().numpy().tobytes())
        parts = (self._store.get(f"{number}/{rank}") for rank in range(self._size))
        return (torch.frombuffer(bytearray(p), dtype=data.dtype).view_as(data) for p in parts)

    def _end(self, rest: Callable[[], object]) -> Pending | None:
        rest()
        return None


class Later(AtOnce):
    def _end(self, rest: Callable[[], object]) -> Pending | None:
        return Pending(lambda: (rest(), None)[1])
