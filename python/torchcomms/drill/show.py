"""Shows cells and results as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from torchcomms import _output
from torchcomms._table import table
from torchcomms.drill.cell import Cell
from torchcomms.drill.verdict import Result

_WIDTH = 100  # width of the reason in the table for the terminal


def cells_table(cells: Sequence[Cell]) -> str:
    """A table of the cells."""
    rows = [(c.id, c.injection, c.expect, "slow" if c.slow else "") for c in cells]
    return table(("cell", "fault", "survivors", ""), rows)


def results_table(results: Sequence[Result]) -> str:
    """A table with one line per cell and backend."""
    rows = [
        (r.cell, r.backend, _verdict(r), _seconds(r.detected_s), f"{r.took_s:.1f}", _short(r.why))
        for r in results
    ]
    return table(("cell", "backend", "verdict", "detected s", "took s", "why"), rows, right=(3, 4))


def summary(results: Sequence[Result]) -> str:
    """Counts the verdicts: "ctran: 40 pass, 1 fail; ..."."""
    backends = dict.fromkeys(r.backend for r in results)
    parts = []
    for backend in backends:
        counts = Counter(_verdict(r) for r in results if r.backend == backend)
        parts.append(f"{backend}: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    return "; ".join(parts)


def markdown(results: Sequence[Result]) -> str:
    """A Markdown table with one line per cell and one column per backend.

    Below the table, it lists the results other than "pass".
    """
    backends = list(dict.fromkeys(r.backend for r in results))
    by_cell: dict[str, dict[str, Result]] = {}
    for r in results:
        by_cell.setdefault(r.cell, {})[r.backend] = r
    lines = ["| cell | fault | " + " | ".join(f"`{b}`" for b in backends) + " |"]
    lines.append("|---" * (2 + len(backends)) + "|")
    for cell, of in by_cell.items():
        injection = next(iter(of.values())).injection
        shown = [_cell(of[b]) if b in of else "-" for b in backends]
        lines.append(f"| {cell} | {_plain(injection)} | " + " | ".join(shown) + " |")
    lines += ["", f"{summary(results)}.", ""]
    lines += [
        f"- {r.cell} on `{r.backend}`: {_verdict(r)}: {_plain(r.why)}"
        for r in results
        if r.verdict != "pass"
    ]
    return "\n".join(lines) + "\n"


def write_json(results: Sequence[Result], path: Path) -> None:
    """Writes one object: the results, as a list in `results`, and the machine they ran on."""
    _output.write(path, json.dumps(as_object(results), indent=1) + "\n")


def as_object(results: Sequence[Result]) -> dict[str, object]:
    import os
    import platform

    import torch

    import torchcomms

    return {
        "torchcomms": torchcomms.__version__,
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "results": [r.as_dict() for r in results],
    }


def _verdict(r: Result) -> str:
    return f"{r.verdict} (documented)" if r.known else r.verdict


def _cell(r: Result) -> str:
    shown = _verdict(r)
    return f"{shown}, {r.detected_s:.2f} s" if r.detected_s is not None else shown


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
