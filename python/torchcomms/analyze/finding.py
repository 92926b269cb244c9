"""What a verdict consists of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["mismatch", "behind", "stuck", "message", "gone", "failed"]


@dataclass(frozen=True)
class Finding:
    """Something wrong. `ranks` are the global ranks it is about, `waiting` those that wait, since
    `since_ns` of the wall clock (0: nobody says). Of processes that are gone, `comm` and
    `operation` are empty, and `sequence` is 0."""

    kind: Kind
    comm: str
    operation: str
    sequence: int
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    text: str
    since_ns: int = 0


def have(ranks: Collection[int]) -> str:
    """The verb after ranks_text()."""
    return "has" if len(ranks) == 1 else "have"


def ranks_text(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 0-2, 5": runs are written as such, for jobs of thousands."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s' if len(ordered) != 1 else ''} {text}"
