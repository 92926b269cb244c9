"""The interface of a cell's program: make communicators, name points, expect errors."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed import FileStore, PrefixStore, Store, TCPStore

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import BASELINE, Cell
from torchcomms.drill.side import Pending, Side, open_side
from torchcomms.drill.verdict import Finding, Report, Verdict

RENDEZVOUS_TIMEOUT_S = 30.0  # timeout of a rendezvous of running ranks


@dataclass(frozen=True)
class Role:
    """Everything that a process needs to know. Ranks count from 0, helpers continue after them."""

    cell: Cell
    backend: str
    index: int
    run: str  # unique per run of a cell: two runs share no name on the store
    store_port: int  # port of a store that the runner serves
    free_port: int  # no process listens on it
    folder: str  # the folder of this run; TMPDIR is below it
    seed: int
    limit_s: float  # timeout of an operation, unless the cell sets one
    slack: float  # factor on all bounds
    rounds: int  # rounds of cells that repeat
    runner: int  # process id of the runner
    libraries: Mapping[str, str]  # variables of the runner that select libraries

    @property
    def is_rank(self) -> bool:
        return self.index < self.cell.ranks


class Scene:
    """One process of a cell. Programs are plain functions with this argument.

    Threads: only the program's main thread, unless a method says otherwise.
    """

    def __init__(self, role: Role, connection: Connection) -> None:
        self.role, self.cell = role, role.cell
        self.rank, self.size = role.index, role.cell.ranks
        self.backend = role.backend
        self.ours = not role.backend.startswith(BASELINE)
        self.limit_s = role.limit_s
        self.survivors = [r for r in range(self.size) if r not in role.cell.victims]
        self.report = Report()
        self.open: list[Side] = []  # finalized at the end of the cell
        self._connection = connection
        self.stores: list[Store] = []
        self._comm_count = 0

    # ---- findings

    def find(self, verdict: Verdict, text: str) -> None:
        """Adds a finding. Any thread."""
        self.report.findings.append(Finding(verdict, f"rank {self.rank}: {text}"))

    def check(self, condition: object, text: str) -> None:
        if not condition:
            self.find("fail", text)

    # ---- points: requests to the runner. Each call returns when the event has happened.

    def meet(self, point: str, ranks: Sequence[int] | None = None) -> None:
        """Returns when all of `ranks` (default: all ranks) have called it with this point."""
        who = list(range(self.size)) if ranks is None else list(ranks)
        self._ask("meet", point, tuple(who))

    def await_end(self, rank: int) -> None:
        """Returns when the process of that rank has exited."""
        self._ask("await end", rank)

    def send_signal(self, rank: int, number: int) -> None:
        """Sends a signal to the process of that rank."""
        self._ask("signal", rank, number)

    def note_fault(self) -> None:
        """Notes that the fault happens now; the detection time counts from here."""
        self._ask("fault", time.monotonic())

    def note_fault_from_thread(self) -> None:
        """Notes the fault from another thread, which ends this process next.

        It waits for no answer.
        """
        self._connection.send(("fault", time.monotonic()))

    def die(self, number: int = signal.SIGKILL) -> NoReturn:
        """Ends this process here, as the fault."""
        self.note_fault()
        os.kill(os.getpid(), number)
        signal.pause()
        raise AssertionError("unreachable: the signal has ended this process")

    def _ask(self, *request: object) -> None:
        self._connection.send(request)
        self._connection.recv()

    # ---- communicators

    def store(self) -> Store:
        """A store of this run in a file: unlike a TCPStore it needs no name server."""
        store = FileStore(str(self.tmp / "store"), -1)
        self.stores.append(store)
        return store

    def tcp_store(self, port: int | None = None) -> Store:
        """A new connection to the runner's store, or to a store at that port of this host."""
        limit = timedelta(seconds=60)
        port = self.role.store_port if port is None else port
        client = TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
        self.stores.append(client)
        return PrefixStore(self.role.run, client)

    def comm(
        self, name: str | None = None, *, ranks: Sequence[int] | None = None,
        store: Store | None = None, limit_s: float | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Side:  # fmt: skip
        """Makes a communicator of `ranks` (all). Collective over them, in the same order on all.

        By default the ranks use the run's store and keep it. With a given store, they leave it as
        programs do by default. Unless the cell sets a timeout, the start-up has a long one, for
        busy machines.
        """
        if self.ours and store is None and limit_s is None:
            options["rendezvous_s"] = RENDEZVOUS_TIMEOUT_S
        if name is None:
            self._comm_count += 1
            name = f"{self.role.run}_{self._comm_count}"
        who = list(range(self.size)) if ranks is None else list(ranks)
        if store is None:
            store = PrefixStore(name, self.store())
            if self.ours:
                options["hints"] = {"persistent_store": "true", **options.get("hints", {})}
        limit_s = self.limit_s if limit_s is None else limit_s
        place = (who.index(self.rank), len(who))
        side = open_side(self.backend, name, store, place, limit_s, **options)
        self.open.append(side)
        return side

    def finalize(self, side: Side) -> None:
        """Finalizes a communicator, also a failed one, within a bound."""
        self.open.remove(side)
        with self.bounded(2.0 + self.limit_s, "finalize()"):
            side.finalize()

    # ---- expectations

    @contextlib.contextmanager
    def bounded(self, limit_s: float, what: str) -> Iterator[None]:
        """Adds a finding if the block takes longer than `limit_s`."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        bound_s = limit_s * self.role.slack
        self.check(took < bound_s, f"{what} took {took:.2f} s, not within {bound_s:g} s")

    def right(self, pending: Pending) -> None:
        """Waits for an operation that must succeed, and checks its values."""
        pending.wait()
        if text := pending.wrong():
            self.find("wrong result", text)

    def works(self, side: Side, op: str = "all_reduce") -> None:
        """Checks that the communicator works, by one operation."""
        self.right(side.start(op, async_op=False))

    def raises(
        self, action: Callable[[], object], kinds: str, *, naming: Sequence[int] = (),
        fragments: Sequence[str] = (), within_s: float | None = None, least_s: float = 0.0,
        what: str = "the call",
    ) -> BaseException | None:  # fmt: skip
        """Checks that `action` raises one of `kinds` (type names, separated by |) that names these
        ranks.

        For the baseline, any exception is accepted. Returns the exception; None if nothing was
        raised.
        """
        began = time.monotonic()
        try:
            action()
        except BaseException as error:
            now = time.monotonic()
            self.report.raised_at = now
            self.judge(error, kinds, naming=naming, fragments=fragments, what=what)
            took = now - began
            if within_s is not None and took > within_s * self.role.slack:
                self.find("fail", f"{what} raised after {took:.2f} s, not within {within_s:g} s")
            if took < least_s:
                self.find("fail", f"{what} raised after {took:.2f} s, not after {least_s:g} s")
            return error
        self.find("fail", f"{what} succeeded, expected {kinds}")
        return None

    def judge(
        self, error: BaseException, kinds: str, *, naming: Sequence[int] = (),
        fragments: Sequence[str] = (), what: str = "the call",
    ) -> None:  # fmt: skip
        """Checks an error as `raises` does."""
        text = str(error)
        self.report.errors.append(f"rank {self.rank}: {type(error).__name__}: {text}")
        mine = {kind.__name__ for kind in type(error).__mro__}
        if self.ours and not mine & set(kinds.split("|")):
            self.find("fail", f"{what} raised {type(error).__name__}, not {kinds}: {text}")
        missing = [f"rank {r}" for r in naming if not names_rank(text, r)]
        missing += [fragment for fragment in fragments if fragment.lower() not in text.lower()]
        if missing:
            self.find("fail", f"the error does not name {', '.join(missing)}: {text}")

    def fails_for(
        self, side: Side, op: str, kinds: str, *, naming: Sequence[int], attempts: int = 3,
        shape: Shape = Shape(), limit_s: float | None = None,  # noqa: B008
    ) -> Pending | None:  # fmt: skip
        """Repeats an operation until it raises. Operations that complete before must be right.

        A collective may complete on this rank although another rank died in it. Without `limit_s`
        the timeout is long on `ctran`, where no rank waits for it; on other backends some ranks
        wait for theirs.

        Returns: the operation that failed, if it was started.
        """
        if limit_s is None:
            limit_s = 30.0 if self.backend == "ctran" else 2 * self.limit_s
        pending: Pending | None = None
        for _ in range(attempts):
            try:
                pending = side.start(op, shape, limit_s=limit_s)
                pending.wait()
            except Exception as error:
                self.report.raised_at = time.monotonic()
                self.judge(error, kinds, naming=naming, what=op)
                return pending
            if text := pending.wrong():
                self.find("wrong result", text)
                return pending
        self.find("fail", f"{op} succeeded {attempts} times, expected {kinds}")
        return pending

    @property
    def tmp(self) -> Path:
        """A folder that only this run uses."""
        return Path(self.role.folder)


def names_rank(text: str, rank: int) -> bool:
    """Returns: whether an error text names the rank:

    "rank 1", "ranks 0, 1 and 2 more", "peer 1".
    """
    lists = re.findall(r"\b(?:ranks?|peer)\b:? \[?(\d+(?:(?:,| and|-) ?\d+)*)", text)
    return any(str(rank) in re.findall(r"\d+", found) for found in lists)
