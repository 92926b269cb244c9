"""The tensors of one call: fills them before it, and checks them after it.

Each tensor lies between margins that no operation may write to. Outputs and margins are filled with
the same byte before the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torchcomms.soak.calls import Arguments, Piece, Segment
from torchcomms.soak.plan import Operation
from torchcomms.soak.values import Expected, Sample

POISON = 0xA5
_MARGIN_BYTES = 64  # a multiple of every element size


@dataclass(frozen=True)
class Wrong:
    """The first wrong element of a tensor."""

    where: str  # "output[2]", or "behind output[2]"
    index: int
    got: str
    expected: str
    count: int  # number of wrong elements of this tensor
    untouched: bool  # the element still has its fill from before the call

    def __str__(self) -> str:
        text = f"{self.where}: element {self.index} is {self.got}, expected {self.expected}"
        text += f" ({self.count} wrong)"
        return text + "; the element was not written" if self.untouched else text


class Buffer:
    """One tensor with its margins."""

    def __init__(self, name: str, piece: Piece, op: Operation, device: torch.device) -> None:
        self.name, self.piece = name, piece
        dtype: torch.dtype = getattr(torch, op.dtype)
        self._begin = _MARGIN_BYTES + op.offset * dtype.itemsize
        self._end = self._begin + piece.numel * dtype.itemsize
        self._bytes = torch.empty(self._end + _MARGIN_BYTES, dtype=torch.uint8, device=device)
        self._flat = self._bytes[self._begin : self._end].view(dtype)

    @property
    def tensor(self) -> torch.Tensor:
        return self._flat if self.piece.shape is None else self._flat.view(self.piece.shape)

    @property
    def size_bytes(self) -> int:
        return self._end - self._begin

    def view(self, first: int, numel: int) -> torch.Tensor:
        return self._flat[first : first + numel]

    def fill(self, sample: Sample) -> None:
        """Writes the content that the tensor has before the call, and poisons the margins."""
        self._bytes.fill_(POISON)
        for part, segment in self._segments(self.piece.before):
            if segment.kind != "poison":
                part.copy_(
                    sample.given(segment.rank, segment.part).tiled(part.numel(), part.device)
                )

    def good(self, sample: Sample) -> torch.Tensor:
        """Whether all values and margins are right, as a bool tensor on the device."""
        margins = (self._bytes[: self._begin], self._bytes[self._end :])
        verdicts = [(margin == POISON).all() for margin in margins]
        for part, segment in self._segments(self.piece.after or ()):
            if segment.kind == "poison":
                verdicts.append((_bytes_of(part) == POISON).all())
            else:
                verdicts.append(_agree(part, _expected(segment, sample)).all())
        return torch.stack(verdicts).all()

    def diagnose(self, sample: Sample) -> Wrong | None:
        """The first wrong element or margin byte, or None."""
        first = 0
        for part, segment in self._segments(self.piece.after or ()):
            if wrong := self._wrong(part.cpu(), segment, sample, first):
                return wrong
            first += part.numel()
        ends = (("before", self._bytes[: self._begin]), ("behind", self._bytes[self._end :]))
        for side, margin in ends:
            bad = (margin.cpu() != POISON).nonzero()
            if len(bad):
                at = int(bad[0])
                got = f"byte {int(margin[at]):#04x}"
                return Wrong(f"{side} {self.name}", at, got, f"byte {POISON:#04x}", len(bad), False)
        return None

    def _wrong(
        self, part: torch.Tensor, segment: Segment, sample: Sample, first: int
    ) -> Wrong | None:
        if segment.kind == "poison":
            same = (_bytes_of(part) == POISON).view(part.numel(), -1).all(1)
            expected = "the fill bytes"
        else:
            result = _expected(segment, sample)
            same = _agree(part, result)
        bad = (~same).nonzero()
        if not len(bad):
            return None
        at = int(bad[0])
        if segment.kind != "poison":
            expected = str(result.values[at % result.values.numel()].item())
            expected += f" within {result.bound:.3g}" if result.bound else ""
        untouched = bool((_bytes_of(part[at : at + 1]) == POISON).all())
        got = str(part[at].item()) if segment.kind != "poison" else _hex(part[at : at + 1])
        return Wrong(self.name, first + at, got, expected, len(bad), untouched)

    def _segments(self, segments: tuple[Segment, ...]) -> Iterator[tuple[torch.Tensor, Segment]]:
        first = 0
        for segment in segments:
            if segment.numel:
                yield self._flat[first : first + segment.numel], segment
            first += segment.numel


class Buffers:
    """All tensors of one call, by argument."""

    def __init__(self, given: Arguments, op: Operation, device: torch.device) -> None:
        self._all: list[Buffer] = []
        self.tensors: dict[str, list[torch.Tensor]] = {}
        self._fillers: list[torch.Tensor] = []
        for name, pieces in given.items():
            buffers = []
            for index, piece in enumerate(pieces):
                if piece.inside is not None:
                    outer, first = piece.inside
                    buffers.append(self._buffer(outer).view(first, piece.numel))
                    continue
                called = name if len(pieces) == 1 else f"{name}[{index}]"
                self._all.append(Buffer(called, piece, op, device))
                buffers.append(self._all[-1].tensor)
            self.tensors[name] = buffers

    def fill(self, sample: Sample) -> None:
        for buffer in self._all:
            buffer.fill(sample)

    def good(self, sample: Sample, device: torch.device) -> torch.Tensor:
        verdicts = [buffer.good(sample) for buffer in self._all]
        return torch.stack(verdicts).all() if verdicts else torch.tensor(True, device=device)

    def diagnose(self, sample: Sample) -> Wrong | None:
        return next((wrong for b in self._all if (wrong := b.diagnose(sample))), None)

    @property
    def size_bytes(self) -> int:
        return sum(buffer.size_bytes for buffer in self._all)

    def forget_inputs(self) -> None:
        """Drops the inputs, and overwrites memory that the allocator would reuse for them."""
        dropped = [b for b in self._all if b.piece.before == b.piece.after]
        kept = [b for b in self._all if b not in dropped]
        names = {b.name.partition("[")[0] for b in kept}
        self.tensors = {name: list_ for name, list_ in self.tensors.items() if name in names}
        places = [(b.size_bytes, b.tensor.device) for b in dropped]
        self._all = kept
        dropped.clear()
        self._fillers = [
            torch.full((size,), ~POISON & 0xFF, dtype=torch.uint8, device=device)
            for size, device in places
        ]

    def _buffer(self, name: str) -> Buffer:
        return next(buffer for buffer in self._all if buffer.name == name)


def _expected(segment: Segment, sample: Sample) -> Expected:
    if segment.kind == "given":
        return sample.given(segment.rank, segment.part)
    return sample.reduced(segment.part)


def _agree(part: torch.Tensor, expected: Expected) -> torch.Tensor:
    """Compares each element with the expected one."""
    want = expected.tiled(part.numel(), part.device)
    if expected.bound is None:
        return (_bytes_of(part) == _bytes_of(want)).view(part.numel(), -1).all(1)
    if expected.bound == 0:
        wide = torch.complex128 if part.dtype.is_complex else torch.float64
        return part.to(wide) == want.to(wide)
    return (part.to(want.dtype) - want).abs() <= expected.bound


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def _hex(tensor: torch.Tensor) -> str:
    return "bytes " + bytes(_bytes_of(tensor).tolist()).hex()
