"""Forks processes of the package's commands from a process that has imported torch."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# A process may be started by one thread at a time: starting one makes multiprocessing poll all of
# its processes, which is not thread-safe.
processes = threading.Lock()
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def server() -> Any:  # noqa: ANN401
    """multiprocessing's context: a server without communicators that forks on request."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch.distributed", "torchcomms", "torchcomms.drill.around"]
    )
    return context


def start(process: Any) -> None:  # noqa: ANN401
    """Starts a process of `server()` from any program.

    A script without an `if __name__ == "__main__"` guard works too.
    """
    with _no_main():
        process.start()


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Hides the main module, whose file multiprocessing would run again in its children."""
    with processes:
        own = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = own


def settle(log_path: Path) -> None:
    """Makes this process a session leader that writes to a log and dies with its parent.

    SIGABRT ends the process and writes the stacks of its threads to the log.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, meaning in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, meaning)
    os.close(null)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable(file=log, all_threads=True)
