"""One measured operation at one size on one rank: its buffers, its calls and its right answer."""

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
    """Where and what: this rank, the world, and the elements of the operation's largest buffer."""

    rank: int
    size: int
    numel: int
    dtype: torch.dtype
    device: torch.device
    # Zeroes in memory that a backend wants tensors in; None where any will do.
    room: Callable[[int, torch.dtype], torch.Tensor | None] | None = None

    @property
    def chunk(self) -> int:
        """Elements of one rank's share, for operations that cut the buffer into `size` parts."""
        return self.numel // self.size

    def shares(self) -> list[int]:
        """Unequal shares for the v-operations: rank i gets i+1 parts; they add up to `numel`."""
        parts = self.size * (self.size + 1) // 2
        edges = [self.numel * (k * (k + 1) // 2) // parts for k in range(self.size + 1)]
        return [high - low for low, high in pairwise(edges)]

    @staticmethod
    def poison(tensor: torch.Tensor) -> None:
        """Fills an output with what no sample and no sum of samples is."""
        tensor.fill_(-1)

    def empty(self, numel: int) -> torch.Tensor:
        made = self.room(numel, self.dtype) if self.room else None
        return torch.zeros(numel, dtype=self.dtype, device=self.device) if made is None else made

    def sample(self, rank: int, numel: int, start: int = 0) -> torch.Tensor:
        """Elements [start, start + numel) of what `rank` contributes: whole numbers 0..4, which
        every dtype adds up exactly for the rank counts of one host."""
        index = torch.arange(start, start + numel, device=self.device)
        return ((index + 3 * rank) % 5).to(self.dtype)

    def total(self, numel: int, start: int = 0) -> torch.Tensor:
        """The sum of all ranks' samples."""
        index = torch.arange(start, start + numel, device=self.device)
        return sum((index + 3 * r) % 5 for r in range(self.size)).to(self.dtype)  # type: ignore[union-attr]


@dataclass(frozen=True)
class RawCall:
    """What a vendor's library is given where it is called without torchcomms around it."""

    collective: str
    input: torch.Tensor
    output: torch.Tensor
    count: int  # elements of the smaller side; for each peer in an all-to-all
    root: int = 0


class Exchange:
    """Base of all measured operations; subclasses are registered with `@bench`.

    The buffers are made once; timed calls repeat on them with zeros inside, because an in-place sum
    of anything else would overflow. `fill()` and `wrong()` bracket one more call that is checked.
    """

    name: str
    bus_factor: Callable[[int], float]
    chunked = False  # the largest buffer is cut into `size` parts
    rooted = False  # a rank may be done before another began, so samples need a barrier between
    min_ranks = 1
    accumulates = False  # calls in a row do not give what one gives
    captured = True  # a graph of it can be made on every backend
    messages = 1  # in a row, by one sample: 2 for a ping-pong, whose half is one message

    def __init__(self, case: Case) -> None:
        self.case = case
        self.allocate()

    def allocate(self) -> None:
        """Makes the buffers, zeroed."""
        raise NotImplementedError

    def fill(self) -> None:
        """Writes this rank's sample into the inputs, and poison into pure outputs."""
        raise NotImplementedError

    def results(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(what is there, what must be there) for each output that this rank owns."""
        raise NotImplementedError

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        """One sample of the timed loop on a TorchComm, from start to done, made with `timed()`."""
        raise NotImplementedError

    def call_c10d(self, group: dist.ProcessGroup, async_op: bool) -> Call | None:
        """The same on torch.distributed; None where it offers no such operation."""
        raise NotImplementedError

    def call_raw(self) -> RawCall | None:
        """The same of a vendor's library alone; None where that is not measured."""
        return None

    def clear(self) -> None:
        """Zeros in all buffers, as they were made."""
        for value in vars(self).values():
            if isinstance(value, torch.Tensor):  # lists are views of these
                value.zero_()

    def wrong(self) -> str | None:
        """Compares outputs with the right answer; None when all elements agree.

        The tolerance is `size` roundings of the largest value; 0 for integers.
        """
        for got, want in self.results():
            if got.numel() == 0:
                continue
            off = (got.double() - want.double()).abs()
            eps = torch.finfo(got.dtype).eps if got.dtype.is_floating_point else 0.0
            allowed = self.case.size * eps * want.double().abs().max()
            if not bool((off <= allowed).all()):  # NaN compares false, so it is wrong too
                at = int((~(off <= allowed)).nonzero()[0])
                return f"element {at} is {got[at].item()}, must be {want[at].item()}"
        return None


@dataclass(frozen=True)
class Awaited:
    """A call that starts something and waits for it."""

    start: Call  # returns what is to be waited for

    def __call__(self) -> None:
        self.start().wait()


def timed(async_op: bool, function: Callable[..., Any], *arguments: object) -> Call:
    """Binds the arguments, so that the loop looks nothing up; asynchronous calls are waited for."""
    start = partial(function, *arguments)
    return Awaited(start) if async_op else start


OPERATIONS: dict[str, type[Exchange]] = {}


def bench(
    name: str, bus_factor: Callable[[int], float] = lambda n: 1.0
) -> Callable[[type[Exchange]], type[Exchange]]:
    """Registers a measured operation. `bus_factor(ranks)` turns algbw into busbw as nccl-tests do:
    the share of the buffer that must cross a rank's link, so that values compare across sizes."""

    def register(cls: type[Exchange]) -> type[Exchange]:
        cls.name = name
        cls.bus_factor = staticmethod(bus_factor)
        OPERATIONS[name] = cls
        return cls

    return register


def operation(name: str) -> type[Exchange]:
    """Looks an operation up by name. Raises BenchError naming the allowed ones."""
    if name not in OPERATIONS:
        raise BenchError(f"unknown operation {name!r}; allowed: {', '.join(OPERATIONS)}, overhead")
    return OPERATIONS[name]
