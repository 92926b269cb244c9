"""One measured operation at one size on one rank: its buffers, its calls and its correct result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from torchcomms import TorchComm
from torchcomms.bench.errors import BenchError

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """What is measured: the rank, the number of ranks, and the largest buffer of the operation.

    Attributes:
        rank: this rank.
        size: the number of ranks.
        numel: elements of the operation's largest buffer.
        dtype: the type of the elements.
        device: the device of the buffers.
        room: allocates zeroed memory in which the backend wants its tensors; None: any memory will
            do.
    """

    rank: int
    size: int
    numel: int
    dtype: torch.dtype
    device: torch.device
    # Allocates zeroed memory in which a backend wants its tensors; None: any memory will do.
    room: Callable[[int, torch.dtype], torch.Tensor | None] | None = None

    @property
    def chunk(self) -> int:
        """Elements of one rank's share, in operations that cut the buffer into `size` parts."""
        return self.numel // self.size

    def shares(self) -> list[int]:
        """Unequal shares for the v-operations: rank i gets i+1 parts; the sum is `numel`."""
        parts = self.size * (self.size + 1) // 2
        edges = [self.numel * (k * (k + 1) // 2) // parts for k in range(self.size + 1)]
        return [high - low for low, high in pairwise(edges)]

    @staticmethod
    def poison(tensor: torch.Tensor) -> None:
        """Fills an output with a value that neither a sample nor a sum of samples has."""
        tensor.fill_(-1)

    def empty(self, numel: int) -> torch.Tensor:
        buffer = self.room(numel, self.dtype) if self.room else None
        return (
            torch.zeros(numel, dtype=self.dtype, device=self.device) if buffer is None else buffer
        )

    def sample(self, rank: int, numel: int, start: int = 0) -> torch.Tensor:
        """Elements [start, start + numel) of the contribution of `rank`: whole numbers from 0 to 4.

        Every dtype adds them up exactly for the numbers of ranks on one host.
        """
        index = torch.arange(start, start + numel, device=self.device)
        return ((index + 3 * rank) % 5).to(self.dtype)

    def total(self, numel: int, start: int = 0) -> torch.Tensor:
        """The sum of the samples of all ranks."""
        index = torch.arange(start, start + numel, device=self.device)
        return sum((index + 3 * r) % 5 for r in range(self.size)).to(self.dtype)  # type: ignore[union-attr]


@dataclass(frozen=True)
class RawCall:
    """The arguments of a vendor library that is called without torchcomms."""

    collective: str
    input: torch.Tensor
    output: torch.Tensor
    count: int  # elements of the smaller side; in an all-to-all per peer
    root: int = 0


class Exchange:
    """Base class of all measured operations; subclasses are registered with `@bench`.

    The buffers are made once. Timed calls repeat on buffers of zeros, because an in-place sum of
    other values would overflow. `fill()` and `wrong()` are called before and after one more call,
    which is checked.
    """

    name: str
    bus_factor: Callable[[int], float]
    chunked = False  # the largest buffer is cut into `size` parts
    # A rank may finish before another one starts, so samples need a barrier between them.
    rooted = False
    min_ranks = 1
    accumulates = False  # several calls in a row give another result than one
    captured = True  # every backend can capture it in a graph
    messages = 1  # messages per sample, one after the other: 2 for a ping-pong

    def __init__(self, case: Case) -> None:
        self.case = case
        self.allocate()

    def allocate(self) -> None:
        """Makes the buffers, zeroed."""
        raise NotImplementedError

    def fill(self) -> None:
        """Writes this rank's sample into the inputs, and poisons pure outputs."""
        raise NotImplementedError

    def results(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Returns (actual, expected) for each output of this rank."""
        raise NotImplementedError

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        """Returns one sample of the timed loop on a TorchComm, made with `timed()`."""
        raise NotImplementedError

    def call_c10d(self, group: dist.ProcessGroup, async_op: bool) -> Call | None:
        """Returns such a call on torch.distributed; None if that has no such operation."""
        raise NotImplementedError

    def call_raw(self) -> RawCall | None:
        """Returns the arguments for a vendor library alone; None if that is not measured."""
        return None

    def clear(self) -> None:
        """Fills all buffers with zeros."""
        for value in vars(self).values():
            if isinstance(value, torch.Tensor):  # lists contain views of these
                value.zero_()

    def wrong(self) -> str | None:
        """Compares outputs with the correct result. Returns None if all elements agree.

        The tolerance is `size` roundings of the largest value; 0 for integers.
        """
        for got, want in self.results():
            if got.numel() == 0:
                continue
            off = (got.double() - want.double()).abs()
            eps = torch.finfo(got.dtype).eps if got.dtype.is_floating_point else 0.0
            allowed = self.case.size * eps * want.double().abs().max()
            if not bool((off <= allowed).all()):  # NaN compares false, so it counts as wrong
                at = int((~(off <= allowed)).nonzero()[0])
                return f"element {at} is {got[at].item()}, must be {want[at].item()}"
        return None


@dataclass(frozen=True)
class Awaited:
    """A call that starts an operation and waits for it."""

    start: Call  # returns the work

    def __call__(self) -> None:
        self.start().wait()


def timed(async_op: bool, function: Callable[..., Any], *arguments: object) -> Call:
    """Binds the arguments, so that the timed loop looks up no names.

    Asynchronous calls are awaited.
    """
    start = partial(function, *arguments)
    return Awaited(start) if async_op else start


OPERATIONS: dict[str, type[Exchange]] = {}


def bench(
    name: str, bus_factor: Callable[[int], float] = lambda n: 1.0
) -> Callable[[type[Exchange]], type[Exchange]]:
    """Registers a measured operation.

    `bus_factor(ranks)` converts algbw to busbw as nccl-tests do. It is the share of the buffer that
    must cross a rank's link, so that values compare across numbers of ranks.
    """

    def register(cls: type[Exchange]) -> type[Exchange]:
        cls.name = name
        cls.bus_factor = staticmethod(bus_factor)
        OPERATIONS[name] = cls
        return cls

    return register


def operation(name: str) -> type[Exchange]:
    """Looks up an operation by name. Raises BenchError with the allowed names."""
    if name not in OPERATIONS:
        raise BenchError(f"unknown operation {name!r}; allowed: {', '.join(OPERATIONS)}, overhead")
    return OPERATIONS[name]
