"""What became of a cell on a backend."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "fail", "hang", "wrong result", "survivor killed", "skipped"]

# Worst first: what a cell is called where several things went wrong.
ORDER: tuple[Verdict, ...] = ("survivor killed", "wrong result", "hang", "fail", "skipped", "pass")


@dataclass(frozen=True)
class Finding:
    """One thing that was not as it must be."""

    verdict: Verdict
    text: str


@dataclass
class Report:
    """What one process of a cell says at its end. Times are of the monotonic clock, in seconds."""

    findings: list[Finding] = field(default_factory=list)
    raised_at: float | None = None  # the last error that was waited for
    errors: list[str] = field(default_factory=list)  # as they were raised
    notes: dict[str, Any] = field(default_factory=dict)  # measured besides


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    cell: str
    backend: str
    verdict: Verdict
    why: str  # empty for "pass"
    known: bool  # documented of this backend: no reason for exit status 1
    detected_s: float | None  # from the fault until the last survivor raised
    took_s: float
    seed: int
    injection: str
    expect: str
    findings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of the ranks, as raised
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def bad(self) -> bool:
        """True for what must not be: a failure of a backend of ours that is not documented."""
        return (
            self.verdict not in ("pass", "skipped")
            and not self.known
            and not self.backend.startswith("c10d:")
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
