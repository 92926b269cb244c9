"""Programs in processes that have torch already: the seconds its import takes are not spent.

For programs whose own start is not what a test is about; `programs` starts new interpreters, too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from .environment import neutral_environment
from .fork_server import LIMIT_BYTES, NUMBER, Request

ROOT = Path(__file__).resolve().parents[2]
# What is looked at while torch and torchcomms are loaded: a server of its own for each value.
READ_BY_IMPORTS = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "TORCHCOMM_EVENTS_PRINT",
    "TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT",
    "TORCHCOMMS_PATCH_FOR_COMPILE",
    "TORCH_DISTRIBUTED_USE_TORCHCOMMS",
)
START_LIMIT_S = 120.0


class Process:
    """A running program. Its output goes to files, so that nobody has to read while it runs."""

    def __init__(self, request: Request, stdin: str = "") -> None:
        self.code: int | None = None  # once it has ended; counted as subprocess does
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        self._status_pipe, status_pipe = os.pipe()
        with tempfile.TemporaryFile() as stdin_file:
            stdin_file.write(stdin.encode())
            stdin_file.seek(0)
            streams = [stdin_file.fileno(), self._out.fileno(), self._err.fileno(), status_pipe]
            _ask(request, streams)
        os.close(status_pipe)
        self.pid = self._receive(time.monotonic() + START_LIMIT_S)
        assert self.pid, "the server of programs has not started this one"

    def fileno(self) -> int:
        """Readable when it has ended and `wait` has not told so yet."""
        return self._status_pipe

    def wait(self, limit: float = 0.0) -> int | None:
        """The exit code; None when it still runs at `limit` (of time.monotonic())."""
        if self.code is None:
            self.code = self._receive(limit)
        return self.code

    def kill(self) -> None:
        """Ends it if it still runs."""
        if self.wait() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait(time.monotonic() + START_LIMIT_S)

    def output(self) -> tuple[str, str]:
        """What it has written until now: stdout, stderr."""
        return _text(self._out), _text(self._err)

    def close(self) -> None:
        """Ends it and forgets what it wrote."""
        self.kill()
        os.close(self._status_pipe)
        self._out.close()
        self._err.close()

    def _receive(self, limit: float) -> int | None:
        left = max(0.0, limit - time.monotonic())
        if not select.select([self._status_pipe], [], [], left)[0]:
            return None
        message = os.read(self._status_pipe, NUMBER.size)
        assert message, "the server of programs is gone"
        return int(NUMBER.unpack(message)[0])


def _text(file: IO[bytes]) -> str:
    # The program's own position in the file is shared with ours: this leaves it alone.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def _ask(request: Request, descriptors: list[int]) -> None:
    choice = {k: v for k, v in request.environment.items() if k in READ_BY_IMPORTS}
    message = pickle.dumps(request)
    assert len(message) <= LIMIT_BYTES, f"a program of {len(message)} bytes"
    socket.send_fds(_server(frozenset(choice.items()), request.needs), [message], descriptors)


@functools.cache
def _server(variables: frozenset[tuple[str, str]], needs: tuple[str, ...]) -> socket.socket:
    """The connection to the server with these variables and modules; it ends when that closes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = ", ".join(map(repr, (theirs.fileno(), *needs)))
    start = f"from tests.harness.fork_server import main; main({arguments})"
    server = subprocess.Popen(
        [sys.executable, "-c", start],
        cwd=ROOT,
        env=neutral_environment(**dict(variables)),
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    atexit.register(_end, server, ours)
    return ours


def _end(server: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    server.wait()
