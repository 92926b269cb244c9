"""The findings that a verdict consists of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["mismatch", "behind", "stuck", "message", "gone", "failed"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong in the records.

    Attributes:
        kind: "mismatch", "behind", "stuck", "message", "gone" or "failed".
        comm: the communicator's name; "" for processes that have exited ("gone").
        operation: the operation's name; "" for "gone".
        sequence: the operation's number; 0 for "gone".
        ranks: the global ranks that the finding is about.
        waiting: the global ranks that wait.
        text: one sentence.
        since_ns: when the wait began, in ns of the wall clock; 0: unknown.
    """

    kind: Kind
    comm: str
    operation: str
    sequence: int
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    text: str
    since_ns: int = 0


def have(ranks: Collection[int]) -> str:
    """The verb that follows ranks_text(): "has" or "have"."""
    return "has" if len(ranks) == 1 else "have"


def ranks_text(ranks: Iterable[int]) -> str:
    """Formats ranks as "rank 3" or "ranks 0-2, 5". Runs keep the text short for large jobs."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s' if len(ordered) != 1 else ''} {text}"
