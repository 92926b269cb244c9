"""What a cell leaves on the machine: processes of its sessions, files in /dev/shm and TMPDIR."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Collection, Sequence
from pathlib import Path

_SHARED = Path("/dev/shm")


class Strays:
    """Made before a cell's processes start; asked when all of its ranks have ended.

    `of_cells` are the processes of all cells of the drill, those that run beside this one, too.
    """

    def __init__(self, of_cells: Collection[int] = ()) -> None:
        self._of_cells = of_cells
        self._before = _shared_files()

    def left(self, sessions: Sequence[int], tmp: Path) -> list[str]:
        """In words. Ends the processes and removes the files that it finds."""
        found = []
        for pid, name in _members(sessions):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            found.append(f"a process is left: {pid} ({name})")
        for name in sorted(_shared_files() - self._before):
            # Others use /dev/shm, too: ours bear a rank's process id, or our name and the id of
            # no process beside this cell. A rank's child may have written it, and be gone.
            numbers = [int(text) for text in re.findall(r"\d+", name)]
            of_ranks = not set(sessions).isdisjoint(numbers)
            if of_ranks or ("torchcomms" in name and not self._is_beside(numbers[:1])):
                found.append(f"a file is left: {_SHARED / name}")
                (_SHARED / name).unlink(missing_ok=True)
        if tmp.is_dir():
            found += [f"a file is left in TMPDIR: {path.name}" for path in sorted(tmp.iterdir())]
        return found

    def _is_beside(self, owner: list[int]) -> bool:
        """A process, if one is named, is of another cell, or of another job that runs."""
        return any(pid in self._of_cells or Path(f"/proc/{pid}").exists() for pid in owner)


def _shared_files() -> set[str]:
    """Without folders: the flight recorder's, whoever uses it first, stays for the next job."""
    if not _SHARED.is_dir():
        return set()
    with os.scandir(_SHARED) as entries:
        return {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}


def _members(sessions: Sequence[int]) -> list[tuple[int, str]]:
    """Living processes of these sessions."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            text = Path("/proc", entry, "stat").read_text()
            name, _, rest = text.partition("(")[2].rpartition(")")
            state, _, _, session = rest.split()[:4]
            if int(session) in sessions and state not in "ZX":
                found.append((int(entry), name))
    return found
