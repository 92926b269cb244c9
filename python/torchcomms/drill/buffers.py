"""Known numbers for operations: the inputs of a rank, and its expected results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather_single", "reduce_scatter_single",
    "all_to_all_single", "gather", "scatter", "barrier",
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The arguments of an operation on one rank. Ranks that disagree have different ones."""

    numel: int = 1000  # elements of one rank's part
    dtype: torch.dtype = torch.float32
    root: int = 0  # or the peer of a send or recv
    reduce_op: str = "sum"


@dataclass
class Buffers:
    """The tensors of one operation.

    Rank r contributes r + 1. If each rank receives a different value, rank r contributes r * size +
    i for rank i.
    """

    op: str
    rank: int
    size: int
    shape: Shape
    output: torch.Tensor = field(init=False)
    input: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        size, ranks = self.size, range(self.size)
        whole = self.op in ("all_gather_single", "all_to_all_single", "gather")
        each = self.op in ("reduce_scatter_single", "all_to_all_single", "scatter")
        in_place = self.op in ("all_reduce", "broadcast", "reduce", "send")
        given = [self.rank * size + i for i in ranks] if each else [self.rank + 1]
        self.input = self._filled(given)
        self.output = self.input if in_place else self._filled([-1] * (size if whole else 1))

    def _filled(self, values: Sequence[int]) -> torch.Tensor:
        parts = [torch.full((self.shape.numel,), value) for value in values]
        return torch.cat(parts).to(self.shape.dtype)

    def slots(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The parts of the tensor by rank, on the root only."""
        return list(tensor.chunk(self.size)) if self.rank == self.shape.root else []

    def wrong(self) -> str | None:
        """How the output differs from the expected one; None if it does not."""
        values = _EXPECTED.get(self.op, _nothing)(self)
        if values is None:
            return None
        want = self._filled(values)
        if torch.equal(self.output, want):
            return None
        at = int((self.output != want).nonzero()[0])
        return f"{self.op} returned {self.output[at]} at element {at}, expected {want[at]}"

    def reduced(self, values: Sequence[int]) -> list[int]:
        return [max(values) if self.shape.reduce_op == "max" else sum(values)]


def _nothing(_: Buffers) -> list[int] | None:
    return None


def _at_root(values: Callable[[Buffers], list[int]]) -> Callable[[Buffers], list[int] | None]:
    return lambda b: values(b) if b.rank == b.shape.root else None


def _sum(b: Buffers) -> list[int]:
    return b.reduced([r + 1 for r in range(b.size)])


def _all(b: Buffers) -> list[int]:
    return [r + 1 for r in range(b.size)]


# The expected values of the output's parts.
_EXPECTED: dict[str, Callable[[Buffers], list[int] | None]] = {
    "all_reduce": _sum,
    "reduce": _at_root(_sum),
    "broadcast": lambda b: [b.shape.root + 1],
    "all_gather_single": _all,
    "gather": _at_root(_all),
    "reduce_scatter_single": lambda b: b.reduced([r * b.size + b.rank for r in range(b.size)]),
    "all_to_all_single": lambda b: [r * b.size + b.rank for r in range(b.size)],
    "scatter": lambda b: [b.shape.root * b.size + b.rank],
}
