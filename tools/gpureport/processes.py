"""A command that ends, with all that it started, when its time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "GPU_REPORT_PART"
GRACE_S = 5.0  # between asking and killing
TICK_S = 0.05
QUIET_LOOKS = 3
LATE = 124  # the status of a command whose time was over


def marked(mark: str) -> list[int]:
    """Processes with this mark in their environment, whosever children they are by now."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


class Command:
    """Runs from when it is made; its output goes to a file."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        folder: Path,
        limit_s: float,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.began = time.monotonic()
        self.limit_s = limit_s
        self.status: int | None = None
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                list(argv), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, **environment, MARK: self.mark}, start_new_session=True,
            )  # fmt: skip

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def is_over(self) -> bool:
        """True once it has ended, or its time has, and nothing of it is left."""
        if self.status is None:
            self.status = self._process.poll()
            if self.status is None and self.seconds > self.limit_s:
                self.status = LATE
        if self.status is None:
            return False
        self.end()
        return True

    def wait(self) -> None:
        """Until it is over."""
        while not self.is_over():
            time.sleep(TICK_S)

    def end(self) -> None:
        """Ends all of its processes: first asked, then killed."""
        for sign, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
            for process in marked(self.mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, sign)
            until = time.monotonic() + patience
            quiet = 0  # looks: a process that is just beginning has no environment to see
            while quiet < QUIET_LOOKS and time.monotonic() < until:
                self._process.poll()  # else it stays as a zombie, whose environment is empty
                left = marked(self.mark)
                quiet = 0 if left else quiet + 1
                for process in left if sign == signal.SIGKILL else ():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, sign)
                time.sleep(TICK_S)
        if self.status is None:
            self.status = self._process.poll()
