"""Reads the Python stacks of running processes, which a signal asks them to write."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from torchcomms.analyze.record import Process

_LIMIT_S = 3.0  # until the process begins to write; a stopped process never does
_QUIET_S = 0.1  # without new output the process has finished
_STEP_S = 0.01


def stacks(process: Process) -> str:
    """The Python stacks of all threads of a process, innermost call first.

    Returns:
        The stacks, or the reason why they are not known.
    """
    if process.state != "running":
        return "not running on this machine"
    if not process.stack_signal:
        return "not available: not a Python program, or one that uses the signal itself"
    path = Path(f"/proc/{process.pid}/fd/{process.stack_descriptor}")
    try:
        # In another container, the pid may be a different process.
        if "torchcomms_stacks" not in os.readlink(path):
            return f"pid {process.pid} is another process here: run this in the rank's container"
        with path.open("rb") as file:
            begin = file.seek(0, os.SEEK_END)
            os.kill(process.pid, process.stack_signal)
            return _shortened(_written(file.fileno(), begin))
    except OSError as error:
        return f"the stacks of process {process.pid} cannot be read: {error.strerror}"


def _written(descriptor: int, begin: int) -> str:
    """Reads from offset `begin` on, until no more output follows."""
    limit = time.monotonic() + _LIMIT_S
    size, changed = begin, limit
    while time.monotonic() < min(limit, changed + _QUIET_S):
        time.sleep(_STEP_S)
        if (now := os.fstat(descriptor).st_size) != size:
            size, changed = now, time.monotonic()
    if size == begin:
        return f"no answer in {_LIMIT_S:g} s"
    return os.pread(descriptor, size - begin, begin).decode(errors="replace")


def _shortened(text: str) -> str:
    """Removes the frames of the interpreter's own start-up."""
    lines = [line for line in text.splitlines() if line and not re.search(r"<frozen ", line)]
    return "\n".join(lines)
