"""The threads of this process, without those that the library keeps for later calls."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

BUSY = "tc-call"  # as src/base/concurrency/executor.cpp names it
KEPT = ("tc-idle", "tc-timer", "tc-watchdog")
RETURN_S = 1.0  # a function that has done its part gives its thread back within this time


def busy_threads() -> list[str]:
    """The names of all threads but those that are kept."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name not in KEPT]


def threads_at_rest() -> int:
    """The number of busy threads, after those whose functions have done their part are idle."""
    pause, until = threading.Event(), time.monotonic() + RETURN_S
    while BUSY in busy_threads() and time.monotonic() < until:
        pause.wait(0.001)
    return len(busy_threads())
