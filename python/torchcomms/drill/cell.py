"""One row of the fault table: what is done to a job, and what its survivors must see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcomms.drill.scene import Scene

Program = Callable[["Scene"], None]

OWN = ("ctran", "gloo")  # everything they do is in this process
VENDORS = ("nccl", "ncclx")  # over a library; here one for host memory
OURS = (*OWN, *VENDORS)
BASELINE = "c10d:"  # prefix of a torch.distributed backend
EVERY = (*OURS, "c10d:gloo")
# Until a rank hears of a peer's death, which closes connections: no limit is waited for.
DEATH_S = 1.0
# Of all cells: words of findings, and what a backend's page says of them.
DOCUMENTED = {"gloo": (("does not name rank", "Gloo does not say which peer it was"),)}
ANY = -256  # an exit status that is not looked at


def nothing_missing() -> str | None:
    """`Cell.missing` of those that run everywhere."""
    return None


@dataclass(frozen=True)
class Cell:
    """A fault, and the program of every rank that meets it.

    The program names the point at which the fault happens; nothing waits for time to pass. What
    holds after every fault (docs/concepts/faults.md, U1 to U7) is asserted around it, for all ranks
    that are not `victims`.
    """

    id: str  # "F01/idle": the fault, and where it strikes
    injection: str
    expect: str  # what the survivors must see
    program: Program
    ranks: int = 3
    # Ranks whose processes end by the fault, and the exit status of each (-9: SIGKILL; ANY).
    victims: Mapping[int, int] = field(default_factory=dict)
    # From the fault until the last survivor has raised; None: only the bounds within the program.
    detect_s: float | None = None
    # Longer than this the cell hangs. Limits of operations come on top, see Plan.
    hang_s: float = 20.0
    backends: Sequence[str] = EVERY
    # What a backend is known, and documented, not to do: reported, but no reason for exit status 1.
    # Does not cover hangs.
    known: Mapping[str, str] = field(default_factory=dict)
    # Processes beside the ranks: a store's server, strangers. They may end in any way.
    helpers: Sequence[Program] = ()
    # Ranks are interpreters of their own, with this environment besides; else forked copies of one
    # that has imported torch. Gets a folder for what it needs; raises Skip.
    fresh: Callable[[Path], dict[str, str]] | None = None
    # On every rank before anything else: where it lives. May raise Skip.
    enter: Callable[[Scene], None] | None = None
    # Ranks that the fault takes from the others: their part of an unrelated communicator, too.
    apart: Sequence[int] = ()
    # Why this machine cannot run it, or None.
    missing: Callable[[], str | None] = nothing_missing
    keeps: bool = False  # leaves things open on purpose: not looked at
    serves: bool = False  # a rank may serve a TCPStore
    bystander: bool = True  # an unrelated communicator of the survivors is watched
    slow: bool = False  # takes more than a few seconds


class Skip(Exception):
    """Raised by a cell's program or preparation: it cannot be run here, and why."""


def plain(folder: Path) -> dict[str, str]:
    """`Cell.fresh` of those that need nothing but an interpreter of their own."""
    del folder
    return {}
