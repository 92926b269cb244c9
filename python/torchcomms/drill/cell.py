"""One row of the fault table: what is done to a job, and what its survivors must see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcomms.drill.scene import Scene

Program = Callable[["Scene"], None]

OWN = ("ctran", "gloo")  # fully implemented in this process
VENDORS = ("nccl", "ncclx")  # use a library; here one for host memory
OURS = (*OWN, *VENDORS)
BASELINE = "c10d:"  # prefix of a torch.distributed backend
EVERY = (*OURS, "c10d:gloo")
# Until peers detect a death, which closes connections: no timeout is involved.
DEATH_S = 1.0
# Known deviations in all cells: words of findings, and the text of the backend's documentation.
DOCUMENTED = {"gloo": (("does not name rank", "Gloo does not report which peer failed"),)}
ANY = -256  # any exit status is accepted


def nothing_missing() -> str | None:
    """The default of `Cell.missing`: the cell runs everywhere."""
    return None


@dataclass(frozen=True)
class Cell:
    """A fault, and the program of every rank.

    The program names the point at which the fault happens; no program waits for time to pass. What
    holds after every fault (docs/concepts/faults.md, U1 to U7) is checked around the program, on
    all ranks that are not `victims`.
    """

    id: str  # "F01/idle": the fault, and the point at which it happens
    injection: str
    expect: str  # what the survivors must see
    program: Program
    ranks: int = 3
    # Ranks whose processes the fault ends, and their exit status (-9: SIGKILL; ANY).
    victims: Mapping[int, int] = field(default_factory=dict)
    # Time from the fault to the last survivor's error; None: only the bounds within the program.
    detect_s: float | None = None
    # A cell that takes longer hangs. Timeouts of operations are added, see Plan.
    hang_s: float = 20.0
    backends: Sequence[str] = EVERY
    # Documented deviations by backend. They are reported, but do not make the exit status 1. Hangs
    # are not covered.
    known: Mapping[str, str] = field(default_factory=dict)
    # Processes in addition to the ranks: a store's server, strangers. Their exit status is ignored.
    helpers: Sequence[Program] = ()
    # If set, ranks are new interpreters with this additional environment; otherwise they are forks
    # of a process that has imported torch. It gets a folder for its files; may raise Skip.
    fresh: Callable[[Path], dict[str, str]] | None = None
    # Called on every rank before anything else, to move it to a namespace. May raise Skip.
    enter: Callable[[Scene], None] | None = None
    # Ranks that the fault separates from the others, also in an unrelated communicator.
    apart: Sequence[int] = ()
    # Returns why this machine cannot run the cell, or None.
    missing: Callable[[], str | None] = nothing_missing
    keeps: bool = False  # leaves objects open on purpose: leaks are not checked
    serves: bool = False  # a rank may serve a TCPStore
    bystander: bool = True  # an unrelated communicator of the survivors is watched
    slow: bool = False  # takes more than a few seconds


class Skip(Exception):
    """Raised by a cell's program or preparation: the cell cannot be run here, for this reason."""


def plain(folder: Path) -> dict[str, str]:
    """The `Cell.fresh` of cells that need only new interpreters."""
    del folder
    return {}
