"""The outcome of a soak."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torchcomms.soak.request import Request

# The worst kind first: of several failures in one step, the worst one is reported.
KINDS = ("wrong value", "different plans", "died", "hang", "error")


@dataclass(frozen=True)
class Failure:
    """The first failure.

    Attributes:
        kind: one of KINDS.
        step: the step that failed.
        rank: the rank that failed.
        text: what happened.
        operation: the fields of the operation, and its "text" and "comm", the communicator's name.
        wrong: the fields of buffers.Wrong.
        ranks: the place and the message of every rank.
        records: the verdict of the library's records.
        culprits: the ranks that the records name.
    """

    kind: str  # one of KINDS
    step: int
    rank: int
    text: str
    # Its fields, "text", and "comm", the communicator's name.
    operation: dict[str, Any] | None = None
    wrong: dict[str, Any] | None = None  # the fields of buffers.Wrong
    ranks: dict[int, str] = field(default_factory=dict)  # the place and the message of each rank
    records: str = ""  # the verdict of the library's records
    culprits: tuple[int, ...] = ()  # the ranks that the records name


@dataclass
class Tally:
    """Counts what one rank, or all ranks, have done."""

    steps: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    size_bytes: Counter[str] = field(default_factory=Counter)
    communicators: int = 0
    graphs: int = 0
    replays: int = 0
    late: int = 0

    def add(self, other: Tally) -> None:
        """Adds all counts except the steps, which all ranks do together."""
        self.calls += other.calls
        self.size_bytes += other.size_bytes
        self.communicators += other.communicators
        self.graphs += other.graphs
        self.replays += other.replays
        self.late += other.late


@dataclass
class Outcome(Tally):
    """What all ranks did, and the first failure.

    Attributes:
        request: what was run.
        seconds: from the first step to the end of the last one.
        failure: the first failure, or None.
    """

    request: Request = field(kw_only=True)
    seconds: float = 0.0  # from the first step to the end of the last one
    failure: Failure | None = None
