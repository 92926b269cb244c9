"""Starts the processes of a cell: forks of a process that has imported torch, or new ones."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from torchcomms import _forked
from torchcomms.drill import process
from torchcomms.drill.scene import Role
from torchcomms.drill.verdict import Report

# A function of the child, the kind of a request, and its arguments.
Request = Callable[["Child", str, tuple[Any, ...]], None]


class Child:
    """A process of a cell, as the runner sees it. Not thread-safe."""

    def __init__(self, role: Role, pid: int, sentinel: int, connection: Connection) -> None:
        self.role, self.pid = role, pid
        self.sentinel, self.connection = sentinel, connection
        self.listening = True  # more messages may arrive
        self.ended = False
        self.status: int | None = None  # as in subprocess: -9 is SIGKILL
        self.report: Report | None = None
        self.skipped = ""

    def receive(self, request: Request) -> None:
        """Reads one message of the process."""
        try:
            kind, *content = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.listening = False
            return
        if kind == "done":
            self.report = content[0]
        elif kind == "skip":
            self.skipped = content[0]
        else:
            request(self, kind, tuple(content))

    def receive_rest(self, request: Request) -> None:
        """Reads the messages that an exited process has sent."""
        while self.listening and self.connection.poll():
            self.receive(request)
        self.listening = False

    def answer(self) -> None:
        with contextlib.suppress(OSError):  # the process may have exited since
            self.connection.send("now")

    def send(self, number: int) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def reap(self) -> None:
        """Takes the exit status of a process that has exited."""
        raise NotImplementedError

    def end(self) -> None:
        """Kills the process if it runs, and waits for it."""
        self.send(signal.SIGKILL)
        if not self.ended:
            self.reap()
        self.listening = False
        self.connection.close()


class _Forked(Child):
    def __init__(self, role: Role) -> None:
        ours, theirs = _forked.server().Pipe()
        self._process = _forked.server().Process(target=process.run, args=(theirs, role))
        _forked.start(self._process)
        theirs.close()
        assert self._process.pid is not None
        super().__init__(role, self._process.pid, self._process.sentinel, ours)

    def reap(self) -> None:
        with _forked.processes:
            self._process.join()
        self.status, self.ended = self._process.exitcode, True


class _Launched(Child):
    def __init__(self, role: Role, environment: Mapping[str, str]) -> None:
        ours, theirs = multiprocessing.Pipe()
        os.set_inheritable(theirs.fileno(), True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torchcomms.drill.fresh", str(theirs.fileno())],
            env={**os.environ, **environment},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        ours.send_bytes(pickle.dumps(role))
        super().__init__(role, self._process.pid, os.pidfd_open(self._process.pid), ours)

    def reap(self) -> None:
        self.status, self.ended = self._process.wait(), True
        os.close(self.sentinel)


def fork(role: Role) -> Child:
    """Forks a process that has imported torch and this library, and made no communicator."""
    return _Forked(role)


def launch(role: Role, environment: Mapping[str, str]) -> Child:
    """Starts a new interpreter, which also runs the shutdown of an interpreter."""
    return _Launched(role, environment)
