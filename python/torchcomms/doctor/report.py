"""The result of the examination: tables of facts, and findings that say what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Literal

Level = Literal["ok", "warning", "problem"]
Row = dict[str, object]


@dataclass(frozen=True)
class Finding:
    """One conclusion of the examination.

    Attributes:
        level: "ok", "warning" or "problem"; a problem makes the exit status 1.
        subject: what the finding is about.
        text: one sentence.
        fix: what to do; "" if `level` is "ok".
    """

    level: Level
    subject: str
    text: str
    fix: str = ""


@dataclass
class Section:
    """Facts of one kind, and the findings about them.

    Attributes:
        name: the key of the section in JSON.
        title: the headline.
        rows: dicts with the same keys, in the order in which they are shown.
        findings: the conclusions.
    """

    name: str  # the key of the section in JSON
    title: str
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def ok(self, subject: str, text: str) -> None:
        self.findings.append(Finding("ok", subject, text))

    def warn(self, subject: str, text: str, fix: str) -> None:
        self.findings.append(Finding("warning", subject, text, fix))

    def problem(self, subject: str, text: str, fix: str) -> None:
        self.findings.append(Finding("problem", subject, text, fix))


@dataclass(frozen=True)
class Report:
    """The whole examination: its sections, and the time that it took."""

    sections: tuple[Section, ...]
    seconds: float

    @property
    def findings(self) -> list[Finding]:
        """The findings of all sections, problems first."""
        order = ("problem", "warning", "ok")
        everything = [f for section in self.sections for f in section.findings]
        return sorted(everything, key=lambda f: order.index(f.level))

    @property
    def ok(self) -> bool:
        return not any(f.level == "problem" for f in self.findings)

    def to_dict(self) -> dict[str, object]:
        """The report for JSON:

        `ok`, `seconds`, `findings`, and the rows of each section by its name.
        """
        return {
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "findings": [asdict(f) for f in self.findings],
            **{section.name: section.rows for section in self.sections},
        }


def facts(pairs: Iterable[tuple[str, object]]) -> list[Row]:
    """Rows of names and values; None prints as "-"."""
    return [{"what": name, "value": value} for name, value in pairs]
