"""The result of a cell on a backend."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "fail", "hang", "wrong result", "survivor killed", "skipped"]

# The worst verdict first: it is the result of a cell with several findings.
ORDER: tuple[Verdict, ...] = ("survivor killed", "wrong result", "hang", "fail", "skipped", "pass")


@dataclass(frozen=True)
class Finding:
    """One deviation from the expected behavior."""

    verdict: Verdict
    text: str


@dataclass
class Report:
    """The report of one process at its end. Times are of the monotonic clock, in seconds."""

    findings: list[Finding] = field(default_factory=list)
    raised_at: float | None = None  # time of the last expected error
    errors: list[str] = field(default_factory=list)  # as they were raised
    notes: dict[str, Any] = field(default_factory=dict)  # further measurements


@dataclass(frozen=True)
class Result:
    """The result of one cell on one backend: a line of the table.

    Attributes:
        cell: the id of the cell.
        backend: the backend.
        verdict: "pass", "fail", "hang", "wrong result", "survivor killed" or "skipped".
        why: the reason; "" for "pass".
        known: documented for this backend, so that it does not make the exit status 1.
        detected_s: seconds from the fault to the last survivor's error.
        took_s: seconds that the cell took.
        seed: the seed of the plan.
        injection: the fault, in words.
        expect: what survivors must see, in words.
        findings: all findings, as text.
        errors: the errors of the ranks, as raised.
        notes: further measurements.
    """

    cell: str
    backend: str
    verdict: Verdict
    why: str  # empty for "pass"
    known: bool  # documented for this backend; does not make the exit status 1
    detected_s: float | None  # from the fault to the last survivor's error
    took_s: float
    seed: int
    injection: str
    expect: str
    findings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of the ranks, as raised
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def bad(self) -> bool:
        """True for a failure of a torchcomms backend that is not documented."""
        return (
            self.verdict not in ("pass", "skipped")
            and not self.known
            and not self.backend.startswith("c10d:")
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
