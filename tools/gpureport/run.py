"""Runs parts, side by side where GPUs allow, each within its time and all within the whole."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import each_test
from .each_test import BEGUN
from .parts import ROOT, Machine, Part
from .processes import LATE, TICK_S, Command

LEAST_S = 10.0  # for a part to begin at all
NO_TESTS = 5  # pytest's status
RESTARTS = 3  # of a suite whose process a test has ended
STATE = "parts.json"


@dataclass
class Result:
    name: str
    title: str
    outcome: str  # passed, failed, "over time", "not reached", "no tests", or why it was not run
    seconds: float = 0.0
    log: str = ""


class Runner:
    """`say` gets a line of progress; `noted` is called whenever a part has a result. So many parts
    share a GPU as the machine says, but for those that measure."""

    def __init__(
        self,
        machine: Machine,
        out: Path,
        seconds: float,
        say: Callable[[str], None],
        noted: Callable[[], object] = lambda: None,
    ) -> None:
        self._machine, self._out, self._say, self._noted = machine, out, say, noted
        self._restarts: dict[str, int] = {}
        self._end = time.monotonic() + seconds
        self._whole_s = seconds
        self._free = dict.fromkeys(range(machine.gpus), machine.parts_a_gpu)
        self._running: list[tuple[Part, Command, list[int]]] = []
        self.results: dict[str, Result] = {}
        state = out / STATE
        if state.exists():
            for row in json.loads(state.read_text()):
                self.results[row["name"]] = Result(**row)

    def run(self, parts: Sequence[Part]) -> None:
        """All that are not done yet. Ends what it began, however it is left."""
        waiting = [part for part in parts if not self._is_done(part)]
        try:
            while waiting or self._running:
                waiting = [part for part in waiting if not self._begin(part)]
                waiting = self._collect() + waiting
                time.sleep(TICK_S)
        finally:
            for part, command, _ in self._running:
                command.end()
                self._note(part, "over time", command)

    def _is_done(self, part: Part) -> bool:
        known = self.results.get(part.name)
        return known is not None and known.outcome in ("passed", "failed", "no tests")

    def _begin(self, part: Part) -> bool:
        """True when there is nothing to wait for any more."""
        left = self._end - time.monotonic()
        if part.needs is not None and not part.needs.exists():
            self._note(part, f"not run: {part.needs} is not there")
        elif part.gpus > self._machine.gpus:
            self._note(part, f"not run: it needs {part.gpus} GPUs, here are {self._machine.gpus}")
        elif left < LEAST_S:
            self._note(part, "not reached")
        elif self._is_blocked(part):
            return False
        else:
            side_by_side = 1 if part.alone else self._machine.parts_a_gpu
            self._start(part, min(left, part.share * self._whole_s * side_by_side))
        return True

    def _is_blocked(self, part: Part) -> bool:
        # Beside a part without GPUs others may run, but not where one measures.
        if part.alone or any(running.alone for running, _, _ in self._running):
            return bool(self._running)
        if any(running.name == "build" for running, _, _ in self._running):
            return True
        if part.gpus == 0:
            return len(self._running) > self._machine.parts_a_gpu
        return part.gpus > sum(left > 0 for left in self._free.values())

    def _start(self, part: Part, limit_s: float) -> None:
        # Those with the least to do.
        gpus = sorted(sorted(self._free, key=self._free.__getitem__, reverse=True)[: part.gpus])
        for gpu in gpus:
            self._free[gpu] -= 1
        environment = dict(self._machine.environment)
        paths = [str(ROOT / "tools"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        if part.world:
            environment[each_test.VARIABLE] = str(self._lines(part))
            environment[each_test.WORLD] = part.world
        log = self._out / f"{part.name}.log"
        self._running.append((part, Command(part.argv, environment, log, ROOT, limit_s), gpus))
        where = f" on GPUs {gpus}" if gpus else ""
        self._say(f"{part.name}: begins{where}, {limit_s:.0f} s at most")

    def _collect(self) -> list[Part]:
        """Returns those to begin again: of a suite whose process a test has ended, the rest."""
        still, again = [], []
        ended = []
        for part, command, gpus in self._running:
            if command.is_over():
                ended.append((part, command))
                for gpu in gpus:
                    self._free[gpu] += 1
            else:
                still.append((part, command, gpus))
        self._running = still
        for part, command in ended:
            late = command.status == LATE and command.seconds > command.limit_s
            self._note(part, "over time" if late else self._outcome(part, command.status), command)
            crashed = bool(part.world) and not late and command.status not in (0, 1, NO_TESTS)
            if crashed and self._restarts.setdefault(part.name, 0) < RESTARTS:
                self._restarts[part.name] += 1
                again.append(part)
        return again

    def _lines(self, part: Part) -> Path:
        return each_test.lines_of(self._out, part.name)

    def _outcome(self, part: Part, status: int | None) -> str:
        """Of a suite also by what its tests said before, when it was begun again."""
        outcomes = {row["outcome"] for row in each_test.read(self._lines(part))}
        if part.world and status == NO_TESTS and not outcomes:
            return "no tests"
        is_good = status == 0 or (bool(part.world) and status == NO_TESTS)
        return "passed" if is_good and not outcomes & {"failed", BEGUN} else "failed"

    def _note(self, part: Part, outcome: str, command: Command | None = None) -> None:
        result = Result(part.name, part.title, outcome)
        if command is not None:
            result.seconds = round(command.seconds, 1)
            result.log = f"{part.name}.log"
        self.results[part.name] = result
        self._say(f"{part.name}: {outcome}" + (f" ({result.seconds} s)" if command else ""))
        rows = [asdict(each) for each in self.results.values()]
        (self._out / STATE).write_text(json.dumps(rows, indent=1) + "\n")
        self._noted()


def say_on_stderr(begin: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    return say
