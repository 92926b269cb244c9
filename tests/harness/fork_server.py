"""The server behind `forked`: imports torch and torchcomms once, then forks a process a program.

It never starts a thread, which a fork would lose. A forked process returns from the server's loop
up to the interpreter's own end, so that a program ends as it would in an interpreter of its own:
uncaught exceptions, exit codes, handlers of atexit, destructors.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import os
import pickle
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import types
from dataclasses import dataclass

# What the text of a request is: code, the path of a file, or the name of a module.
SOURCE, FILE, MODULE = "source", "file", "module"
USUAL = ("torch", "torch.distributed", "torchcomms")
LIMIT_BYTES = 128 << 10  # of a request
# Comes with each: stdin, stdout, stderr, and a pipe that is told the process id and the exit code.
DESCRIPTORS = 4
NUMBER = struct.Struct("q")


@dataclass(frozen=True)
class Request:
    """A program and what it finds around it."""

    kind: str
    text: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    needs: tuple[str, ...] = ()  # modules that its server has imported besides


def main(descriptor: int, *more: str) -> None:
    """Serves the socket until its other end closes. In a forked process: becomes the program."""
    _import(USUAL)
    # Else the last collection of each program looks at all of it, and copies every page.
    gc.collect()
    gc.freeze()
    _import(more)  # triton's objects complain at the end unless they are collected
    request = _serve(socket.socket(fileno=descriptor))
    if request is not None:
        _become(request)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"imports of {names} have started {len(threads) - 1} threads"


def _serve(connection: socket.socket) -> Request | None:
    children: dict[int, tuple[int, int]] = {}  # of the descriptor that tells the end: pid, pipe
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != connection.fileno():
                poll.unregister(ready)
                _report_end(ready, *children.pop(ready))
                continue
            message, descriptors, _, _ = socket.recv_fds(connection, LIMIT_BYTES, DESCRIPTORS)
            if not message:
                for pid, _ in children.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            request: Request = pickle.loads(message)
            pid = os.fork()
            if pid == 0:
                for other, (_, pipe) in children.items():
                    os.close(other)
                    os.close(pipe)
                connection.close()
                _take(descriptors)
                return request
            *streams, status_pipe = descriptors
            for stream in streams:
                os.close(stream)
            os.write(status_pipe, NUMBER.pack(pid))
            end = os.pidfd_open(pid)
            children[end] = (pid, status_pipe)
            poll.register(end, select.POLLIN)


def _report_end(end: int, pid: int, status_pipe: int) -> None:
    os.close(end)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know
        os.write(status_pipe, NUMBER.pack(code))
    os.close(status_pipe)


def _take(descriptors: list[int]) -> None:
    *streams, status_pipe = descriptors
    os.close(status_pipe)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def _become(request: Request) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    program.__dict__["__builtins__"] = builtins
    if request.kind == MODULE:
        sys.path[0] = os.getcwd()
        sys.argv = [request.text, *request.arguments]
        runpy.run_module(request.text, run_name="__main__", alter_sys=True)
        return
    if request.kind == FILE:
        sys.path[0] = os.path.dirname(request.text)
        sys.argv = [request.text, *request.arguments]
        program.__file__ = request.text
        with open(request.text) as file:
            code = compile(file.read(), request.text, "exec")
    else:
        sys.path[0] = ""
        sys.argv = ["-c", *request.arguments]
        code = compile(request.text, "<string>", "exec")
    exec(code, program.__dict__)
