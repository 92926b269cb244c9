"""The parent process of a soak: starts the ranks, grants them steps, and judges the result."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from torchcomms import _forked
from torchcomms.analyze import AnalyzeError, Dump, analyze, read
from torchcomms.analyze.finding import ranks_text
from torchcomms.soak import process
from torchcomms.soak.board import Board
from torchcomms.soak.outcome import KINDS, Failure, Outcome
from torchcomms.soak.process import RECORDS, Role
from torchcomms.soak.request import Request, SoakError

Report = Callable[[str], None]
Program = Callable[[Connection, Role], None]

_LOOK_S = 0.2  # between two polls of the board
_AHEAD = 16  # steps granted at a time
_GRACE_S = 3.0  # after one rank has failed, for reports of the others
_NOTICE_S = 5.0  # after the timeout, until peers learn of the operation that timed out
_START_S = 120.0  # at least, for the imports of the processes
_LOG_CHARS = 3000


def soak(
    request: Request, progress: Report = lambda text: None, program: Program = process.run
) -> Outcome:
    """Runs `request` and returns the outcome. No process is left afterwards.

    Args:
        request: what to run.
        progress: called several times a second with a status text.
        program: the function that a rank runs.
    Raises:
        SoakError: the request is not possible here.
    """
    request.check()
    run = _Run(request, progress)
    try:
        run.start(program)
        return run.outcome()
    finally:
        run.close()


class _Child:
    """A rank as the parent sees it."""

    def __init__(self, role: Role, program: Program) -> None:
        self.rank, self.log = role.rank, role.log
        context = _forked.server()
        self.connection, self._theirs = context.Pipe()
        self.process = context.Process(target=program, args=(self._theirs, role), daemon=True)
        self.ready = False
        self.listening = True  # more messages may arrive
        self.failed: tuple[Any, ...] | None = None
        self.done: tuple[Any, ...] | None = None
        self.place: tuple[int, int, str] = (-1, 0, "start")
        self.since = time.monotonic()  # since when it is in this step, or idle

    def start(self) -> None:
        _forked.start(self.process)
        self._theirs.close()

    def end(self) -> None:
        if self.process.pid is not None:  # the process was started
            if self.process.exitcode is None:
                self.process.kill()
            with _forked.processes:
                self.process.join()
        self.connection.close()

    def grant(self, until: int, last: bool) -> None:
        with contextlib.suppress(OSError):  # an exited process is detected elsewhere
            self.connection.send((until, last))

    def has_reported(self) -> bool:
        return self.failed is not None or self.done is not None


class _Run:
    def __init__(self, request: Request, progress: Report) -> None:
        self._request, self._progress = request, progress
        self._children: list[_Child] = []
        self._granted, self._last = request.from_step, False
        self._began = 0.0
        self._folder = Path(tempfile.mkdtemp(prefix="torchcomms_soak_"))

    def start(self, program: Program) -> None:
        """Starts the ranks. If that fails, `close` ends those that were started."""
        request = self._request
        self._store = TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
        )
        name = f"soak_{os.getpid()}_{self._folder.name}"
        for rank in range(request.ranks):
            role = Role(request, rank, name, self._store.port, str(self._folder), dict(os.environ))
            if rank == 0:
                self._board = Board(role.board, request.ranks)
            self._children.append(_Child(role, program))
            self._children[-1].start()

    def outcome(self) -> Outcome:
        """Serves the ranks until all are done, or one has failed."""
        outcome = Outcome(request=self._request)
        while outcome.failure is None and not all(c.done for c in self._children):
            self._listen(_LOOK_S)
            outcome.failure = self._failure()
            if outcome.failure is None:
                self._go_on()
                self._progress(self._status())
        ended = time.monotonic()
        outcome.seconds = ended - self._began if self._began else 0.0
        if outcome.failure is None:
            outcome.failure = self._different_plans() or self._bad_end()
        self._sum_up(outcome)
        return outcome

    def close(self) -> None:
        for child in self._children:
            child.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self, limit_s: float) -> None:
        waited: list[Any] = [c.connection for c in self._children if c.listening]
        if not waited:
            return
        for connection in wait(waited, timeout=limit_s):
            child = next(c for c in self._children if c.connection is connection)
            try:
                kind, *content = child.connection.recv()
            except (EOFError, ConnectionResetError):
                child.listening = False
                continue
            if kind == "refused":
                raise SoakError(content[0])
            if kind == "ready":
                child.ready, child.since = True, time.monotonic()
            elif kind == "failed":
                child.failed = tuple(content)
            else:
                child.done = tuple(content)

    def _go_on(self) -> None:
        """Grants more steps while time is left, after every rank has its communicators."""
        if self._last or not all(child.ready for child in self._children):
            return
        request, now = self._request, time.monotonic()
        self._began = self._began or now
        if request.steps is not None:
            self._granted, self._last = request.from_step + request.steps, True
        else:
            slowest = min(self._board.read(c.rank)[0] for c in self._children)
            self._last = now - self._began >= 60 * request.minutes
            if not self._last and self._granted - slowest > _AHEAD:
                return
            self._granted += 0 if self._last else _AHEAD
        for child in self._children:
            child.grant(self._granted, self._last)

    def _failure(self) -> Failure | None:
        """The first failure, after the other ranks had time to report."""
        now = time.monotonic()
        hanging = []
        for child in self._children:
            place = self._board.read(child.rank)
            if (place[0], place[2] == "idle") != (child.place[0], child.place[2] == "idle"):
                child.since = now
            child.place = place
            limit = self._request.limit_s + _NOTICE_S
            limit = limit if child.ready else max(limit, _START_S)
            if place[2] != "idle" and not child.has_reported() and now - child.since > limit:
                hanging.append(child)
        gone = [c for c in self._children if not c.listening and not c.has_reported()]
        if not hanging and not gone and not any(c.failed for c in self._children):
            return None
        until = now + _GRACE_S
        while not all(c.has_reported() or not c.listening for c in self._children):
            if (left := until - time.monotonic()) <= 0:
                break
            self._listen(left)
        return self._judged(hanging)

    def _judged(self, hanging: list[_Child]) -> Failure:
        """Chooses one failure: of the first step, of the worst kind, of the rank with least
        progress.

        The other ranks wait in vain for the operation in which that rank waits.
        """
        records = _read(self._folder / RECORDS)
        silent = [c for c in self._children if not c.has_reported() and c.listening]
        self._ask_for_stacks(silent)
        found: list[tuple[tuple[int, int], Failure]] = []
        for child in self._children:
            step, operation, phase = child.place = self._board.read(child.rank)
            if child.failed is not None:
                kind, number, text, fields, wrong, progress = child.failed
                found.append((progress, Failure(kind, number, child.rank, text, fields, wrong)))
            elif not child.listening and not child.done:
                with _forked.processes:
                    child.process.join(_GRACE_S)
                text = f"the process exited with status {child.process.exitcode}"
                text += f" in operation {operation}, phase {phase}\n{self._log_tail(child)}"
                found.append(((0, 0), Failure("died", step, child.rank, text)))
            elif child in hanging:
                text = f"no progress for {self._request.limit_s:g} s, {self._place(child)}"
                found.append(((0, 0), Failure("hang", step, child.rank, text)))
        first = min(found, key=lambda f: (f[1].step, KINDS.index(f[1].kind), f[0]))[1]
        first = replace(first, ranks={c.rank: self._describe(c) for c in self._children})
        if first.kind == "wrong value":  # the other ranks wait for the rank that found it
            return first
        comm = None if first.operation is None else str(first.operation["comm"])
        text, culprits = behind(records, comm)
        return replace(first, records=text, culprits=culprits)

    def _describe(self, child: _Child) -> str:
        """The report of a rank, or its place."""
        if child.done:
            return "completed all steps"
        if child.failed is not None:
            kind, number, text, *_ = child.failed
            return f"step {number}: {kind}: {text}"
        if not child.listening:
            return f"exited with status {child.process.exitcode}"
        return self._place(child)

    def _place(self, child: _Child) -> str:
        step, operation, phase = child.place
        stack = _innermost(child.log)
        return f"in step {step}, operation {operation}, phase {phase}" + (
            f"\n{stack}" if stack else ""
        )

    def _ask_for_stacks(self, children: list[_Child]) -> None:
        """Makes processes write their stacks to their logs. It ends the processes."""
        for child in children:
            child.place = self._board.read(child.rank)
            if child.process.pid is not None and child.process.exitcode is None:
                os.kill(child.process.pid, signal.SIGABRT)
        for child in children:
            with _forked.processes:
                child.process.join(_GRACE_S)

    def _different_plans(self) -> Failure | None:
        plans = {c.rank: c.done[1] for c in self._children if c.done}
        if len(set(plans.values())) == 1:
            return None
        text = (
            "the ranks computed different plans: the backend reports different capabilities to them"
        )
        return Failure("different plans", self._request.from_step, 0, text, ranks=plans)

    def _bad_end(self) -> Failure | None:
        """The failure of a rank that reported no error but did not exit with status 0."""
        for child in self._children:
            with _forked.processes:
                child.process.join(self._request.limit_s + _NOTICE_S)
            status = child.process.exitcode
            if status == 0:
                continue
            how = "did not exit" if status is None else f"exited with status {status}"
            if status is None:
                self._ask_for_stacks([child])
            text = f"the process {how} after the last step\n{self._log_tail(child)}"
            kind = "hang" if status is None else "died"
            return Failure(kind, self._board.read(child.rank)[0], child.rank, text)
        return None

    def _sum_up(self, outcome: Outcome) -> None:
        for child in self._children:
            if child.done:
                outcome.add(child.done[0])
        first = self._request.from_step
        outcome.steps = max(min(self._board.read(c.rank)[0] for c in self._children) - first, 0)

    def _status(self) -> str:
        if not self._began:
            return "starting processes"
        took = time.monotonic() - self._began
        first = self._request.from_step
        steps = min(self._board.read(c.rank)[0] for c in self._children) - first
        total = self._request.steps
        of = (
            f" of {total}" if total else f", {max(60 * self._request.minutes - took, 0):.0f} s left"
        )
        return f"step {first + steps}{of}, {steps / max(took, 1e-9):.0f} a second"

    def _log_tail(self, child: _Child) -> str:
        with contextlib.suppress(OSError):
            return child.log.read_text(errors="replace")[-_LOG_CHARS:].strip()
        return ""


def _innermost(log: Path) -> str:
    """The Python stack of the main thread from a log, if it was written."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()
        heads = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
        heads = heads or [i for i, line in enumerate(lines) if "most recent call first" in line]
        if heads:
            stack = lines[heads[-1] + 1 :]
            return "\n".join(line for line in stack[:8] if line.strip())
    return ""


def _read(folder: Path) -> list[Dump]:
    """The library's records of the calls of all ranks."""
    with contextlib.suppress(AnalyzeError, OSError):
        return read([folder])
    return []


def behind(records: list[Dump], comm: str | None) -> tuple[str, tuple[int, ...]]:
    """What the records say of ranks whose calls are missing, and these ranks.

    Args:
        comm: the communicator of a failed operation. Ranks with fewer calls on it are reported
            first.
    """
    called = {d.rank: d.entered.get(comm, 0) for d in records if comm in d.members}
    if late := [rank for rank, count in called.items() if count < max(called.values())]:
        counts = ", ".join(f"rank {rank} {count}" for rank, count in sorted(called.items()))
        text = f"calls of {ranks_text(late)} on '{comm}' are missing; collectives called: {counts}"
        return text, tuple(sorted(late))
    verdict = analyze(records)
    return ("" if verdict.ok else verdict.summary), verdict.culprits
