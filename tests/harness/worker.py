"""One rank of a world: a forked process that runs functions sent to it until told to stop."""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import pickle
import resource
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from . import here
from .backends import Backend
from .environment import drop_foreign


@dataclass(frozen=True)
class RankSpec:
    """Everything a worker needs to become rank `rank` of its world."""

    backend: Backend
    rank: int
    size: int
    store_port: int  # of the TCPStore that the test process serves on 127.0.0.1
    prefix: str  # unique for each world, so that worlds share the one store
    log_path: str  # receives stdout and stderr of the worker, and the stacks of a hung one


@dataclass(frozen=True)
class Call:
    """A module-level function to run; `wants` says what its first argument is."""

    wants: str  # "comm" or "context"
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Reply:
    """What a call gave: a value, or the text of the exception that left it."""

    value: Any = None
    error: str | None = None


class Context:
    """What a test function knows about its own rank, and how it makes more communicators."""

    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self.backend = spec.backend.name
        self.row = spec.backend
        self.rank = spec.rank
        self.size = spec.size
        self._comm: Any = None
        self._client: Any = None
        self._comm_count = 0
        self.calls = 0  # of functions of tests, this one included: the same on all ranks

    @property
    def device(self) -> Any:
        """The device that tensors of this world live on."""
        import torch

        kind = self.spec.backend.device
        if kind == "cpu":
            return torch.device(kind)
        return torch.device(kind, self.rank % torch.accelerator.device_count())

    @property
    def comm(self) -> Any:
        """The communicator that lives as long as the world does; made at first use."""
        if self._comm is None:
            self._comm = self.new_comm("world")
        return self._comm

    def store(self, name: str, own_connection: bool = False) -> Any:
        """A store that all ranks of this world reach under `name` and nobody else does.

        A thread that waits on a connection keeps other threads off it: `own_connection` gives one
        to those who wait at the same time.
        """
        from torch.distributed import PrefixStore

        if own_connection:
            return PrefixStore(f"{self.spec.prefix}/{name}", self._connect())
        if self._client is None:
            self._client = self._connect()
        return PrefixStore(f"{self.spec.prefix}/{name}", self._client)

    def meet(self, name: str) -> None:
        """Returns when every rank of this world has called it with this name, in this call."""
        store = self.store(f"meet/{self.calls}/{name}")
        store.set(str(self.rank), "here")
        store.wait([str(rank) for rank in range(self.size)])

    def _connect(self) -> Any:
        from torch.distributed import TCPStore

        return TCPStore("127.0.0.1", self.spec.store_port, is_master=False)

    def new_comm(self, name: str | None = None, **options: Any) -> Any:
        """A fresh communicator over all ranks. Ranks must make theirs in the same order."""
        import torchcomms

        self._comm_count += 1
        if name is None:
            name = f"{self.spec.prefix}_comm_{self._comm_count}"
        options.setdefault("store", self.store(f"comm_{self._comm_count}"))
        if self.row.hints:
            options["hints"] = {**dict(self.row.hints), **options.get("hints", {})}
        return torchcomms.new_comm(self.backend, self.device, name, **options)

    def thread(self, body: Callable[..., Any], *args: Any) -> threading.Thread:
        """A started thread that works on this rank's device, where that has streams on one of its
        own: ranks may then call operations of several communicators in any order.
        """

        def run() -> None:
            if self.device.type != "cpu":
                _settle_on(self.device)
                _work_on_own_stream(self.device)
            body(*args)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def close(self) -> None:
        """Finalizes the long-lived communicator, if there is one."""
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.finalize()


def main(connection: Connection, spec: RankSpec) -> None:
    """Serves calls on `connection` until it closes or sends the empty message."""
    # Else the first collection looks at all that was imported, and copies every page: 100 MB.
    gc.freeze()
    _settle(spec)
    here.row = spec.backend
    context = Context(spec)
    if spec.backend.device != "cpu":
        _settle_on(context.device)
    while message := _next_message(connection):
        reply = _answer(context, message)
        connection.send_bytes(reply)
    context.close()


def _settle(spec: RankSpec) -> None:
    log = os.open(spec.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(file=log, all_threads=True)  # SIGABRT prints every Python stack
    drop_foreign()
    os.environ.update(
        TORCHCOMM_RANK=str(spec.rank), TORCHCOMM_SIZE=str(spec.size), MASTER_ADDR="127.0.0.1"
    )
    os.environ.update(spec.backend.environment_of(spec.rank))


def _settle_on(device: Any) -> None:
    """Tensors that this thread makes are on `device` where a test names none."""
    import torch

    torch.accelerator.set_device_index(device.index)
    torch.set_default_device(device)


def _work_on_own_stream(device: Any) -> None:
    import torch

    torch.accelerator.set_stream(torch.Stream(device))


def _next_message(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except EOFError:  # the test process is gone
        return b""


class _Pickler(pickle.Pickler):
    """Tensors travel as tensors of the host: the process that asked needs no device."""

    def reducer_override(self, thing: Any) -> Any:
        import torch

        if isinstance(thing, torch.Tensor) and not thing.is_cpu:
            return thing.cpu().__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        return NotImplemented


def _pickled(reply: Reply) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(reply)
    return buffer.getvalue()


def _answer(context: Context, message: bytes) -> bytes:
    try:
        call: Call = pickle.loads(message)
        context.calls += 1
        first = context.comm if call.wants == "comm" else context
        return _pickled(Reply(value=call.function(first, *call.arguments)))
    except BaseException:
        return pickle.dumps(Reply(error=traceback.format_exc()))
