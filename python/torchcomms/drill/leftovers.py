"""Finds what a cell leaves on the machine: processes, and files in /dev/shm and TMPDIR."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Collection, Sequence
from pathlib import Path

_SHARED = Path("/dev/shm")


class Leftovers:
    """Compares the machine before a cell's processes start and after all ranks have exited.

    `of_cells` are the processes of all cells of the drill, including those that run at the same
    time.
    """

    def __init__(self, of_cells: Collection[int] = ()) -> None:
        self._of_cells = of_cells
        self._before = _shared_files()

    def left(self, sessions: Sequence[int], tmp: Path) -> list[str]:
        """What is left, in words.

        Kills the processes and removes the files of /dev/shm that it finds.
        """
        found = []
        for pid, name in _members(sessions):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            found.append(f"a process is left running: {pid} ({name})")
        for name in sorted(_shared_files() - self._before):
            # Other programs use /dev/shm, too. Our files contain a rank's process id, or our name
            # and the id of a process that is not part of another cell. An exited child of a rank
            # may have written it.
            numbers = [int(text) for text in re.findall(r"\d+", name)]
            of_ranks = not set(sessions).isdisjoint(numbers)
            if of_ranks or ("torchcomms" in name and not self._is_beside(numbers[:1])):
                found.append(f"a file is left: {_SHARED / name}")
                (_SHARED / name).unlink(missing_ok=True)
        if tmp.is_dir():
            found += [f"a file is left in TMPDIR: {path.name}" for path in sorted(tmp.iterdir())]
        return found

    def _is_beside(self, owner: list[int]) -> bool:
        """Returns: whether the named process belongs to another cell, or to another running job."""
        return any(pid in self._of_cells or Path(f"/proc/{pid}").exists() for pid in owner)


def _shared_files() -> set[str]:
    """The files, without folders: the folder of the flight recorder stays for later jobs."""
    if not _SHARED.is_dir():
        return set()
    with os.scandir(_SHARED) as entries:
        return {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}


def _members(sessions: Sequence[int]) -> list[tuple[int, str]]:
    """The running processes of these sessions."""
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
