"""Process worlds: N ranks of one backend, started once and reused by every test that wants them.

A world is one process a rank, forked from a server that has imported torch and torchcomms and has
no thread of its own. A call that raises on any rank, or outlives its deadline, ends the world: the
ranks no longer agree about what comes next, so the following test gets a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .backends import SHARES_GPUS, USUAL_RANKS, Backend
from .native_stacks import native_stacks
from .worker import Call, RankSpec, Reply, main

# A call that takes longer than this hangs: the slowest honest one of so many ranks takes a few
# seconds. More ranks have as much time each.
CALL_DEADLINE_S = float(os.environ.get("TEST_CALL_DEADLINE_S", "90"))
# Ranks still busy this long after another rank raised are stuck waiting for it.
GRACE_AFTER_ERROR_S = 3.0
LOG_TAIL_CHARS = 6000
# Each rank has some 100 MB to itself: all usual worlds of a session, but not those of many ranks.
# A shared GPU takes about 14 processes: cudaSetDevice fails with "out of memory" in the next one.
MOST_RANKS = 8 if SHARES_GPUS else 32


class RanksFailed(AssertionError):
    """Some ranks raised or hung; the text says which, with their tracebacks or stacks."""


@dataclass
class _Rank:
    index: int
    process: Any
    connection: Connection
    log: Path

    def describe_failure(self) -> str:
        return f"the process died, exit code {self.process.exitcode}\n{self.log_tail()}"

    def log_tail(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        return ""


class World:
    """`size` ranks of one backend. Not thread-safe: one call at a time."""

    def __init__(self, backend: Backend, size: int, store_port: int, folder: Path) -> None:
        self.backend = backend
        self.size = size
        self.alive = True
        self.deadline_s = CALL_DEADLINE_S * max(1.0, size / USUAL_RANKS)
        self._ranks = [self._start(rank, store_port, folder) for rank in range(size)]

    def run(
        self, function: Callable[..., Any], *args: Any, deadline: float | None = None
    ) -> list[Any]:
        """Calls function(comm, *args) on every rank; the results, in rank order.

        `function` is module-level (it travels by name); arguments and results are pickled.
        Raises RanksFailed when a rank raised, died or took longer than `deadline` seconds
        (default: `deadline_s` of this world).
        """
        return self._call(Call("comm", function, args), deadline or self.deadline_s)

    def run_context(
        self, function: Callable[..., Any], *args: Any, deadline: float | None = None
    ) -> list[Any]:
        """As `run`, but function receives the rank's Context instead of the communicator."""
        return self._call(Call("context", function, args), deadline or self.deadline_s)

    def close(self) -> None:
        """Ends the ranks in order and raises RanksFailed when one did not end cleanly."""
        if not self.alive:
            return
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                rank.connection.send_bytes(b"")
        limit = time.monotonic() + self.deadline_s
        for rank in self._ranks:
            rank.process.join(max(0.0, limit - time.monotonic()))
        late = [r for r in self._ranks if r.process.exitcode is None]
        self._end()
        bad = [r for r in self._ranks if r.process.exitcode != 0]
        if bad:
            what = "did not end" if late else "ended badly"
            lines = [f"rank {r.index} of {self} {what}: {r.describe_failure()}" for r in bad]
            raise RanksFailed("\n".join(lines))

    def kill(self) -> None:
        """Ends the ranks at once, without finalizing anything."""
        self._end()

    def __str__(self) -> str:
        return f"{self.backend.label}-{self.size}"

    def _start(self, rank: int, store_port: int, folder: Path) -> _Rank:
        ours, theirs = _context().Pipe()
        log = folder / f"rank{rank}.log"
        spec = RankSpec(self.backend, rank, self.size, store_port, folder.name, str(log))
        process = _context().Process(target=main, args=(theirs, spec), daemon=True)
        process.start()
        theirs.close()
        return _Rank(rank, process, ours, log)

    def _call(self, call: Call, deadline: float) -> list[Any]:
        assert self.alive, f"{self} was ended by an earlier failure"
        message = pickle.dumps(call)
        for rank in self._ranks:
            with contextlib.suppress(BrokenPipeError):  # a dead rank is reported by _collect
                rank.connection.send_bytes(message)
        replies = self._collect(deadline)
        silent = [r for r in self._ranks if r.index not in replies]
        failed = {i: r.error for i, r in replies.items() if r.error is not None}
        if silent or failed:
            raise RanksFailed(self._report(call, deadline, silent, failed))
        return [replies[i].value for i in range(self.size)]

    def _collect(self, deadline: float) -> dict[int, Reply]:
        """Replies by rank; a rank that died or is late is absent."""
        waiting = {r.connection: r for r in self._ranks}
        replies: dict[int, Reply] = {}
        limit = time.monotonic() + deadline
        while waiting and (left := limit - time.monotonic()) > 0:
            for connection in wait(list(waiting), timeout=left):
                rank = waiting.pop(connection)
                try:
                    reply: Reply = pickle.loads(connection.recv_bytes())
                except (EOFError, ConnectionResetError):
                    rank.process.join(GRACE_AFTER_ERROR_S)
                    reply = Reply(error=rank.describe_failure())
                replies[rank.index] = reply
                if reply.error is not None:
                    limit = min(limit, time.monotonic() + GRACE_AFTER_ERROR_S)
        return replies

    def _report(
        self, call: Call, deadline: float, silent: list[_Rank], failed: dict[int, str]
    ) -> str:
        with ThreadPoolExecutor() as debuggers:
            stack_texts = list(debuggers.map(native_stacks, [r.process.pid for r in silent]))
        stacks = {r.index: text for r, text in zip(silent, stack_texts, strict=True)}
        for rank in silent:  # faulthandler writes all Python stacks to the log, then it dies
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.process.pid, signal.SIGABRT)
        for rank in silent:
            rank.process.join(GRACE_AFTER_ERROR_S)
        self._end()
        lines = [f"{call.function.__name__} failed on {self}"]
        if silent:
            limit = f"after {deadline:g} s" if not failed else "when another rank had failed"
            lines.append(f"ranks {[r.index for r in silent]} had not finished {limit}")
        lines += [f"--- rank {i} raised ---\n{text}" for i, text in sorted(failed.items())]
        lines += [
            f"--- rank {r.index} was here ---\n{r.log_tail()}\n{stacks[r.index]}" for r in silent
        ]
        return "\n".join(lines)

    def _end(self) -> None:
        self.alive = False
        for rank in self._ranks:
            if rank.process.exitcode is None:
                rank.process.kill()
        for rank in self._ranks:
            rank.process.join()
            rank.connection.close()


class Worlds:
    """The worlds of one test session, by backend and size, and the store they all meet on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._worlds: dict[tuple[str, int], World] = {}  # the one used last at the end
        self._errors: list[str] = []
        self._numbers = itertools.count()
        self._store: Any = None

    def get(self, backend: Backend, size: int) -> World:
        """The living world of that backend and size; started when there is none."""
        key = (backend.label, size)
        world = self._worlds.pop(key, None)
        if world is None or not world.alive:
            self._make_room(size)
            world = self.fresh(backend, size)
        self._worlds[key] = world
        return world

    def fresh(self, backend: Backend, size: int) -> World:
        """A world of its own, for a test that ends its ranks. The caller closes or kills it."""
        folder = self._folder / f"{backend.label}_{size}_{next(self._numbers)}"
        folder.mkdir(parents=True)
        return World(backend, size, self._store_port(), folder)

    def close(self) -> None:
        """Ends every world; raises when ranks crashed or hung while ending."""
        self._make_room(MOST_RANKS)
        if self._errors:
            raise RanksFailed("\n".join(self._errors))

    def _make_room(self, size: int) -> None:
        """Ends worlds, those used least lately first, until `size` more ranks may live."""
        while (
            self._worlds and sum(world.size for world in self._worlds.values()) + size > MOST_RANKS
        ):
            world = self._worlds.pop(next(iter(self._worlds)))
            try:
                world.close()
            except RanksFailed as error:
                self._errors.append(str(error))

    def _store_port(self) -> int:
        if self._store is None:
            from torch.distributed import TCPStore

            self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return self._store.port


def _context() -> Any:
    """The fork server: one process that imported everything once and never starts a thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch.distributed", "torchcomms", "pytest", "tests.harness.preload"]
    )
    return context
