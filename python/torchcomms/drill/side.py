"""The interface of a communicator for cells: of this library, or of torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.distributed import Store

from torchcomms.drill.buffers import Buffers, Shape
from torchcomms.drill.cell import BASELINE


@dataclass
class Pending:
    """An operation that was started."""

    wait: Callable[[], object]
    buffers: Buffers

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self.buffers.input, self.buffers.output]

    def wrong(self) -> str | None:
        """After wait(): how the values differ from the expected ones, or None."""
        return self.buffers.wrong()


class Side(Protocol):
    """A communicator. Its splits are of the same type."""

    name: str
    rank: int
    size: int

    def start(
        self, op: str, shape: Shape = ..., *, async_op: bool = True, limit_s: float | None = None
    ) -> Pending:
        """Starts a collective of `buffers.COLLECTIVES`, or a send or recv."""

    def split(self, ranks: Sequence[int], limit_s: float) -> Side | None: ...

    def finalize(self) -> None: ...


def open_side(
    backend: str,
    name: str,
    store: Store,
    place: tuple[int, int],
    limit_s: float,
    **options: Any,  # noqa: ANN401
) -> Side:
    """Makes a communicator over `store`; `place` is its rank and size. Collective."""
    from torchcomms.drill.baseline import Baseline
    from torchcomms.drill.ours import Ours

    if backend.startswith(BASELINE):
        return Baseline(name, store, place, limit_s)
    return Ours(backend, name, store, place, limit_s, **options)
