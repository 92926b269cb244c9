"""What a cell leaves on the machine: processes of its sessions, files in /dev/shm and TMPDIR."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

_SHARED = Path("/dev/shm")


class Strays:
    """Made before a cell's processes start; asked when all of its ranks have ended."""

    def __init__(self) -> None:
        self._before = _shared_files()

    def left(self, sessions: Sequence[int], tmp: Path) -> list[str]:
        """In words. Ends the processes and removes the files that it finds."""
        found = []
        for pid, name in _members(sessions):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            found.append(f"a process is left: {pid} ({name})")
        for name in sorted(_shared_files() - self._before):
            # Others use /dev/shm, too, and cells beside this one: ours bear a rank's process
            # id, or our name and nobody's.
            numbers = set(re.findall(r"\d+", name))
            if numbers & {str(s) for s in sessions} or ("torchcomms" in name and not numbers):
                found.append(f"a file is left: {_SHARED / name}")
                (_SHARED / name).unlink(missing_ok=True)
        if tmp.is_dir():
            found += [f"a file is left in TMPDIR: {path.name}" for path in sorted(tmp.iterdir())]
        return found


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
