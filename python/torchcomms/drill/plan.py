"""What to run, and the check of it before any process starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchcomms._arguments import MOST_SECONDS_HERE
from torchcomms.drill.cell import EVERY, VENDORS, Cell

MOST_SLACK = 1000.0


class DrillError(Exception):
    """The request is not valid. The text names the value seen and the allowed ones."""


@dataclass(frozen=True)
class Plan:
    """A run of cells on backends. A cell runs on every given backend that it is meant for."""

    cells: Sequence[Cell]
    backends: Sequence[str]
    seed: int = 1
    jobs: int = 1  # cells that run at a time
    limit_s: float = 2.0  # timeout of operations that are expected to time out
    slack: float = 1.0  # factor on all bounds, for machines with other work
    rounds: int = 100  # rounds of cells that repeat

    def check(self) -> None:
        """Raises DrillError for the first wrong value."""
        import torchcomms

        if not self.backends:
            raise DrillError("no backend is given")
        for name in self.backends:
            if name not in EVERY:
                raise DrillError(f"unknown backend {name!r}; allowed: {', '.join(EVERY)}")
            if name.startswith("c10d:"):
                continue
            if name not in torchcomms.built_backends():
                raise DrillError(f"backend {name} is not part of this build")
            if name in VENDORS:
                _require_host_library(name)
        for label, value in (("jobs", self.jobs), ("rounds", self.rounds)):
            if value < 1:
                raise DrillError(f"{label}: {value} is not above 0")
        for label, number, most in (
            ("limit", self.limit_s, MOST_SECONDS_HERE),
            ("slack", self.slack, MOST_SLACK),
        ):
            if not 0 < number <= most:
                raise DrillError(f"{label}: {number:g} is not above 0 and at most {most:g}")
        if not self.cells:
            raise DrillError("no cell is given")

    def cases(self) -> Iterator[tuple[Cell, str]]:
        for cell in self.cells:
            for backend in self.backends:
                if backend in cell.backends:
                    yield cell, backend


def _require_host_library(backend: str) -> None:
    """Raises DrillError if the backend's library cannot use CPU tensors, which all ranks have."""
    from torchcomms.doctor.vendors import why_not_on_host

    if why_not := why_not_on_host(backend):
        raise DrillError(why_not)


def chosen(cells: Sequence[Cell], text: str, slow: bool) -> list[Cell]:
    """Selects cells: "F01,F17/double" is all cells of F01 and one of F17; "" is all cells.

    Without `slow`, slow cells are omitted unless they are named in full.

    Raises:
        DrillError: an unknown cell.
    """
    ids = [cell_id.strip() for cell_id in text.split(",") if cell_id.strip()]
    for cell_id in ids:
        if not any(_is_meant(cell, cell_id) for cell in cells):
            fault = cell_id.partition("/")[0]
            of_fault = [cell.id for cell in cells if _is_meant(cell, fault)]
            known = of_fault or sorted({cell.id.partition("/")[0] for cell in cells})
            raise DrillError(
                f"unknown cell {cell_id!r}; allowed: {', '.join(known)}"
                + ("" if of_fault else "; see --list")
            )
    found = [c for c in cells if not ids or any(_is_meant(c, cell_id) for cell_id in ids)]
    return [c for c in found if slow or not c.slow or c.id in ids]


def _is_meant(cell: Cell, cell_id: str) -> bool:
    return cell.id == cell_id or cell.id.partition("/")[0] == cell_id
