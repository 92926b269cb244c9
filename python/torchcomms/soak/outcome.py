"""How a soak went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torchcomms.soak.request import Request

# Worst first: what is told of several ranks that failed in one step.
KINDS = ("wrong value", "different plans", "died", "hang", "error")


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong."""

    kind: str  # one of KINDS
    step: int
    rank: int
    text: str
    operation: dict[str, Any] | None = None  # its fields, "text", "comm": the name
    wrong: dict[str, Any] | None = None  # the fields of buffers.Wrong
    ranks: dict[int, str] = field(default_factory=dict)  # where each was, and what it said
    records: str = ""  # what the library's records of the ranks' calls say
    culprits: tuple[int, ...] = ()  # the ranks that they name


@dataclass
class Tally:
    """What one rank has done, or all of them."""

    steps: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    size_bytes: Counter[str] = field(default_factory=Counter)
    communicators: int = 0
    graphs: int = 0
    replays: int = 0
    late: int = 0

    def add(self, other: Tally) -> None:
        """Adds all but the steps, which ranks do together."""
        self.calls += other.calls
        self.size_bytes += other.size_bytes
        self.communicators += other.communicators
        self.graphs += other.graphs
        self.replays += other.replays
        self.late += other.late


@dataclass
class Outcome(Tally):
    """What all ranks did, and what went wrong."""

    request: Request = field(kw_only=True)
    seconds: float = 0.0  # from the first step to the end of the last
    failure: Failure | None = None
