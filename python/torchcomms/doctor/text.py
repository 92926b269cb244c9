"""The report as text: the tables, then the findings."""

from __future__ import annotations

from collections.abc import Callable

from torchcomms._table import printable, table
from torchcomms.doctor.report import Level, Report, Section


def to_text(report: Report, mark: Callable[[Level, str], str] = lambda level, text: text) -> str:
    """The report as plain text.

    Args:
        report: the result of examine().
        mark: called with a level and its word; returns the word, for example in color.
    """
    parts = [_section(section) for section in report.sections if section.rows]
    parts.append("\n".join(["Findings", *_findings(report, mark)]))
    counts = [
        f"{n} {label}{'s' if n > 1 else ''}"
        for label in ("problem", "warning")
        if (n := sum(f.level == label for f in report.findings))
    ]
    parts.append(f"{' and '.join(counts) or 'no problem'}, after {report.seconds:.1f} s")
    return "\n\n".join(parts)


def _section(section: Section) -> str:
    headers = list(section.rows[0])
    if headers == ["what", "value"]:
        width = max(len(str(row["what"])) for row in section.rows)
        lines = [f"{str(row['what']).ljust(width)}  {_cell(row['value'])}" for row in section.rows]
    else:
        rows = [[_cell(row[key]) for key in headers] for row in section.rows]
        lines = table(headers, rows).splitlines()
    return "\n".join([section.title, *("  " + line for line in lines)])


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else printable(str(value))


def _findings(report: Report, mark: Callable[[Level, str], str]) -> list[str]:
    lines = []
    for finding in report.findings:
        label = finding.level if finding.level == "ok" else finding.level.upper()
        text = printable(f"{finding.subject}: {finding.text}")
        lines.append(f"  {mark(finding.level, label.ljust(7))}  {text}")
        if finding.fix:
            lines.append(f"           {printable(finding.fix)}")
    return lines
