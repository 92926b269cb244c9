"""Inputs and expected results: functions of seed, step, operation, rank and part.

A sample repeats after `period` elements, so that every rank quickly computes the inputs of all
ranks. Reduced values are small whole numbers, so that sums are exact in every dtype and order.
Divisions and fractional factors have an error bound, which is derived below.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

import torchcomms
from torchcomms.soak.plan import COMPLEX, FLOATS, Operation

# Whole numbers up to this limit are exact, and so are sums below it.
_EXACT = {
    "float64": 1 << 20, "float32": 1 << 20, "float16": 1 << 11, "bfloat16": 1 << 8,
    "float8_e4m3fn": 1 << 4, "float8_e5m2": 1 << 3, "complex64": 1 << 20, "complex128": 1 << 20,
    "int8": 127, "uint8": 127, "bool": 1,
}  # fmt: skip
_LARGEST = 1 << 14  # used if the dtype allows more
_MOST_FACTOR = 3


@dataclass(frozen=True)
class Expected:
    """One period of a result, and the allowed error of an element."""

    values: torch.Tensor
    bound: float | None  # None: all bits must be equal; 0: equal as numbers

    def tiled(self, numel: int, device: torch.device) -> torch.Tensor:
        return tiled(self.values.to(device), numel)


def tiled(period: torch.Tensor, numel: int) -> torch.Tensor:
    """Repeats a sample to `numel` elements."""
    if numel <= period.numel():
        return period[:numel]
    return period.view(torch.uint8).repeat(-(-numel // period.numel())).view(period.dtype)[:numel]


class Sample:
    """All values of one operation of a group of `size` ranks.

    `salt` makes the values unique. Inputs differ by `turn`; the factors of ranks do not.
    """

    def __init__(self, op: Operation, size: int, salt: str, turn: int = 0) -> None:
        self._op, self._size, self._salt, self._turn = op, size, salt, turn
        self._dtype: torch.dtype = getattr(torch, op.dtype)

    def given(self, rank: int, part: int) -> Expected:
        """One period of the input of `rank`, part `part`."""
        if self._op.reduction:
            return Expected(self._whole(rank, part).to(self._dtype), None)
        generator = self._generator(rank, part)
        if self._dtype == torch.bool:
            return Expected(torch.rand(self._op.period, generator=generator) < 0.5, None)
        count = self._op.period * self._dtype.itemsize
        raw = torch.randint(0, 256, (count,), generator=generator, dtype=torch.uint8)
        return Expected(raw.view(self._dtype), None)

    def reduced(self, part: int) -> Expected:
        """One period of the reduction of part `part` over all ranks."""
        op, size = self._op, self._size
        parts = [self._whole(rank, part) for rank in range(size)]
        if op.dtype == "bool":
            return Expected(_logical(op.reduction, parts), None)
        divides = op.reduction.startswith("PREMUL") or op.reduction == "AVG"
        if divides and self._inexact:
            parts = [part.to(self._wide) for part in parts]
        if op.reduction.startswith("PREMUL"):
            scaled = [p * self._factor(rank) for rank, p in enumerate(parts)]
            total = functools.reduce(torch.add, scaled)
            return Expected(*self._rounded(total, size * self.magnitude * _MOST_FACTOR, size + 1))
        if op.reduction == "AVG":
            total = functools.reduce(torch.add, parts)
            if self._inexact:
                return Expected(*self._rounded(total / size, self.magnitude, size + 1))
            return Expected(torch.div(total, size, rounding_mode="trunc").to(self._dtype), None)
        total = functools.reduce(_PLAIN[op.reduction], parts)
        # Zeros of either sign are equal; integers are compared by bits.
        return Expected(total.to(self._dtype), 0 if self._inexact else None)

    def operation(self, rank: int, device: torch.device) -> torchcomms.ReduceOp | None:
        """The reduce operation that rank `rank` passes."""
        kind = self._op.reduction
        if not kind:
            return None
        if kind == "PREMUL_NUMBER":
            return torchcomms.ReduceOp.PREMUL_SUM(float(self._factor(rank)))
        if kind == "PREMUL_TENSOR":
            factor = torch.tensor([self._factor(rank)]).to(self._dtype).to(device)
            return torchcomms.ReduceOp.PREMUL_SUM(factor)
        operation: torchcomms.ReduceOp = getattr(torchcomms.ReduceOp, kind)
        return operation

    @property
    def exact(self) -> bool:
        """Whether the reduction has the same result in any order."""
        divides = self._op.reduction.startswith("PREMUL") or self._op.reduction == "AVG"
        return not (divides and self._inexact)

    @property
    def magnitude(self) -> int:
        """The largest absolute value of an element: sums of all ranks, with factors, stay exact."""
        most = min(_EXACT.get(self._op.dtype, _LARGEST), _LARGEST)
        scale = _MOST_FACTOR if self._op.reduction.startswith("PREMUL") else 1
        return max(most // (self._size * scale), 1)

    @property
    def _inexact(self) -> bool:
        return self._op.dtype in FLOATS or self._op.dtype in COMPLEX

    @property
    def _wide(self) -> torch.dtype:
        return torch.complex128 if self._dtype.is_complex else torch.float64

    def _rounded(
        self, values: torch.Tensor, most: float, roundings: int
    ) -> tuple[torch.Tensor, float | None]:
        """Returns `values` in a dtype that holds them, and the error bound of `roundings`
        roundings.

        Each rounding is at most half an eps of a number that is at most `most`. One more is the
        final rounding to the element type. Integers have none.
        """
        if not self._inexact:
            return values.to(self._dtype), None
        half_eps = torch.finfo(self._dtype).eps / 2
        # A complex number has two rounded parts.
        return values, (roundings + 1) * half_eps * most * (2 if self._dtype.is_complex else 1)

    def _whole(self, rank: int, part: int) -> torch.Tensor:
        """Whole numbers as int64 or as complex128, or bools."""
        op, generator = self._op, self._generator(rank, part)

        def numbers(low: int, high: int) -> torch.Tensor:
            return torch.randint(low, high + 1, (op.period,), generator=generator)

        if op.dtype == "bool":
            return numbers(0, 1).bool()
        signed = not op.dtype.startswith("uint")
        if op.reduction == "PRODUCT":
            return self._factors_of_a_product(numbers, signed)
        most = self.magnitude
        if not self._dtype.is_complex:
            return numbers(-most if signed else 0, most)
        return torch.complex(numbers(-most, most).double(), numbers(-most, most).double())

    def _factors_of_a_product(
        self, numbers: Callable[[int, int], torch.Tensor], signed: bool
    ) -> torch.Tensor:
        """Powers of two, or of i, so that the product over all ranks has few bits."""
        if self._dtype.is_complex:
            turns = torch.tensor([1, 1j, -1, -1j], dtype=torch.complex128)
            return turns[numbers(0, 3)]
        has_twos = 1 << self._size <= _EXACT.get(self._op.dtype, 127)
        twos = 1 + numbers(0, 1) * has_twos
        return twos * (2 * numbers(0, 1) - 1) if signed else twos

    def _factor(self, rank: int) -> float | int:
        """A factor in quarters, or a whole one for integers; at most _MOST_FACTOR."""
        number = _number(f"{self._salt} factor {rank}")
        return 1 + number % _MOST_FACTOR if not self._inexact else (number % 11 - 4) / 4

    def _generator(self, rank: int, part: int) -> torch.Generator:
        return torch.Generator().manual_seed(_number(f"{self._salt} {self._turn} {rank} {part}"))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


_PLAIN: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
}  # fmt: skip


def _logical(reduction: str, parts: list[torch.Tensor]) -> torch.Tensor:
    if reduction in ("SUM", "MAX", "BOR"):
        return functools.reduce(torch.logical_or, parts)
    if reduction == "BXOR":
        return functools.reduce(torch.logical_xor, parts)
    return functools.reduce(torch.logical_and, parts)
