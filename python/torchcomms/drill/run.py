"""Runs cells: starts processes, serves their requests, ends what is left, and judges."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from torchcomms.drill.cell import ANY, DOCUMENTED, Cell, Skip
from torchcomms.drill.leftovers import Leftovers
from torchcomms.drill.plan import Plan
from torchcomms.drill.points import Points
from torchcomms.drill.ports import free_port
from torchcomms.drill.process import log_path
from torchcomms.drill.scene import Role
from torchcomms.drill.start import Child, fork, launch
from torchcomms.drill.verdict import ORDER, Finding, Result, Verdict

Report = Callable[[str], None]
GRACE_S = 5.0  # a process that has reported must exit within this time
_numbers = itertools.count()


def drill(plan: Plan, progress: Report = lambda label: None) -> Iterator[Result]:
    """Runs every cell of `plan` on every backend. Yields the results in the order of the plan.

    No process is left, also if the caller leaves the iterator early.

    Args:
        plan: what to run.
        progress: called with a label as each cell begins.
    Raises:
        DrillError: the plan is not valid.
    """
    plan.check()
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )

    of_cells = set[int]()

    def one(case: tuple[Cell, str]) -> Result:
        cell, backend = case
        progress(f"{cell.id} {backend}")
        return _Run(plan, cell, backend, store.port, of_cells).result()

    cases = list(plan.cases())
    if plan.jobs == 1:
        yield from map(one, cases)
        return
    with ThreadPoolExecutor(plan.jobs) as pool:
        try:
            yield from pool.map(one, cases)
        finally:
            pool.shutdown(cancel_futures=True)


def _names_library(variable: str) -> bool:
    return variable.startswith("TORCHCOMM") and (
        variable.endswith("_LIBRARY") or variable.startswith("TORCHCOMMS_")
    )


class _Run:
    """One cell on one backend."""

    def __init__(
        self, plan: Plan, cell: Cell, backend: str, store_port: int, of_cells: set[int]
    ) -> None:
        self._plan, self._cell, self._backend = plan, cell, backend
        self._store_port, self._of_cells = store_port, of_cells
        self._name = f"drill_{os.getpid()}_{next(_numbers)}"
        self._findings: list[Finding] = []
        self._skipped = ""
        self._children: list[Child] = []
        self._free_port = free_port(random.Random(f"{plan.seed} {self._name}"))

    def result(self) -> Result:
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="torchcomms_drill_"))
        detected: float | None = None
        try:
            if reason := self._cell.missing():
                raise Skip(reason)
            detected = self._run(folder)
        except Skip as reason:
            self._skipped = str(reason)
        try:
            return self._judged(time.monotonic() - began, detected)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, folder: Path) -> float | None:
        cell = self._cell
        extra = None if cell.fresh is None else cell.fresh(folder)
        leftovers = Leftovers(self._of_cells)
        try:
            for index in range(cell.ranks + len(cell.helpers)):
                role = self._role(index, folder)
                is_fresh = extra is not None and role.is_rank
                child = launch(role, extra or {}) if is_fresh else fork(role)
                self._children.append(child)
                self._of_cells.add(child.pid)
            points = Points(self._children)
            self._attend(points)
        finally:
            self._end()
        sessions = [child.pid for child in self._children]
        for text in leftovers.left(sessions, folder / "tmp"):
            self._findings.append(Finding("fail", text))
        return self._detected(points)

    def _role(self, index: int, folder: Path) -> Role:
        plan = self._plan
        return Role(
            cell=self._cell,
            backend=self._backend,
            index=index,
            run=self._name,
            store_port=self._store_port,
            free_port=self._free_port,
            folder=str(folder),
            seed=plan.seed,
            limit_s=plan.limit_s,
            slack=plan.slack,
            rounds=plan.rounds,
            runner=os.getpid(),
            libraries={n: v for n, v in os.environ.items() if _names_library(n)},
        )

    def _attend(self, points: Points) -> None:
        """Serves requests until every rank has exited or the cell hangs."""
        cell, plan = self._cell, self._plan
        until = time.monotonic() + cell.hang_s * plan.slack + 3 * plan.limit_s
        ranks = self._children[: cell.ranks]
        while any(not child.ended for child in ranks):
            left = until - time.monotonic()
            if left <= 0:
                self._report_hang()
                return
            waited: list[Any] = [child.connection for child in self._children if child.listening]
            waited += [child.sentinel for child in self._children if not child.ended]
            ready = wait(waited, timeout=left)
            for child in self._children:
                if child.connection in ready:
                    child.receive(points.request)
                if child.sentinel in ready and not child.ended:
                    child.receive_rest(points.request)
                    child.reap()
                    points.on_end(child)
                    if self._died(child):
                        until = min(until, time.monotonic() + GRACE_S * plan.slack)
            if any(child.skipped for child in self._children):
                return

    def _died(self, child: Child) -> bool:
        """Returns: whether a rank exited unexpectedly, so that peers may wait for it in vain."""
        index, role = child.role.index, child.role
        if not role.is_rank or child.report is not None or child.skipped:
            return False
        return index not in self._cell.victims

    def _report_hang(self) -> None:
        """Adds a finding for each hanging rank, with the stack from its log."""
        hanging = [c for c in self._children[: self._cell.ranks] if not c.ended]
        for child in hanging:
            child.send(signal.SIGCONT)
            child.send(signal.SIGABRT)
        wait([c.sentinel for c in hanging], timeout=GRACE_S)
        killed = [c for c in self._children if self._died(c) and c.ended]
        for child in hanging:
            rank = child.role.index
            if child.report is not None:
                text = f"rank {rank} has reported, and does not exit"
            elif killed:
                text = f"rank {rank} hangs after the exit of rank {killed[0].role.index}"
            else:
                text = f"rank {rank} hangs"
            self._findings.append(Finding("hang", f"{text}: {_innermost(log_path(child.role))}"))

    def _end(self) -> None:
        for child in self._children:
            child.end()

    def _detected(self, points: Points) -> float | None:
        """The seconds from the fault to the last error.

        Adds a finding if the cell's bound is exceeded.
        """
        cell = self._cell
        raised = [
            child.report.raised_at
            for child in self._children[: cell.ranks]
            if child.report is not None and child.report.raised_at is not None
            and child.role.index not in cell.victims
        ]  # fmt: skip
        if not raised or points.fault_at is None:
            return None
        detected = max(raised) - points.fault_at
        if cell.detect_s is not None and detected > cell.detect_s * self._plan.slack:
            text = (
                f"the last error was raised {detected:.2f} s after the fault, not within"
                f" {cell.detect_s:g} s"
            )
            self._findings.append(Finding("fail", text))
        return detected

    def _judged(self, took_s: float, detected_s: float | None) -> Result:
        cell = self._cell
        skipped = self._skipped or next((c.skipped for c in self._children if c.skipped), "")
        findings, errors, notes = self._findings, list[str](), dict[str, Any]()
        for child in [] if skipped else self._children[: cell.ranks]:
            findings += self._of_child(child)
            if child.report is not None:
                errors += child.report.errors
                notes |= child.report.notes
        for child in self._children[cell.ranks :]:
            findings += child.report.findings if child.report is not None else []
        verdict: Verdict = "skipped" if skipped else "pass"
        why, known = skipped, False
        if findings and not skipped:
            undocumented = [f for f in findings if not self._documented(f)]
            known = not undocumented
            worst = min(undocumented or findings, key=lambda f: ORDER.index(f.verdict))
            verdict, why = worst.verdict, worst.text
            if known:
                why = f"{self._documented(worst)}: {why}"
        return Result(
            cell=cell.id,
            backend=self._backend,
            verdict=verdict,
            why=why,
            known=known,
            detected_s=detected_s,
            took_s=took_s,
            seed=self._plan.seed,
            injection=cell.injection,
            expect=cell.expect,
            findings=[f"{f.verdict}: {f.text}" for f in findings],
            errors=errors,
            notes=notes,
        )

    def _documented(self, finding: Finding) -> str:
        """Why a deviation of this backend is documented; "" if it is not."""
        if finding.verdict == "hang":
            return ""
        for pattern, reason in DOCUMENTED.get(self._backend, ()):
            if pattern in finding.text:
                return reason
        return self._cell.known.get(self._backend, "")

    def _of_child(self, child: Child) -> list[Finding]:
        findings = list(child.report.findings) if child.report is not None else []
        rank, status = child.role.index, child.status
        if rank in self._cell.victims:
            due = self._cell.victims[rank]
            if status is not None and due not in (ANY, status):
                text = f"rank {rank} exited with status {status}, expected {due}"
                findings.append(Finding("fail", text))
            return findings
        hung = any(f.verdict == "hang" and f"rank {rank} " in f.text for f in self._findings)
        if not hung and status != 0:
            where = _innermost(log_path(child.role))
            text = f"rank {rank} exited with status {status}: {where}"
            findings.append(Finding("survivor killed", text))
        elif not hung and child.report is None:
            findings.append(Finding("fail", f"rank {rank} exited without a report"))
        return findings


def _innermost(log: Path) -> str:
    """The innermost frame in a log, or its last line."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()
        main = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
        main = main or [i for i, line in enumerate(lines) if "most recent call first" in line]
        if main:
            stack = [line.strip() for line in lines[main[-1] + 1 : main[-1] + 30]]
            inside = [line for line in stack if f"drill{os.sep}cells" in line] or stack
            return inside[0] if inside else "no stack"
        return next((line for line in reversed(lines) if line.strip()), "the log is empty")
    return "the process left no log"
