"""Runs parts, side by side where GPUs allow, each within its time and all within the whole."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import each_test
from .parts import ROOT, Machine, Part
from .processes import LATE, TICK_S, Command

LEAST_S = 10.0  # for a part to begin at all
STATE = "parts.json"


@dataclass
class Result:
    name: str
    title: str
    outcome: str  # passed, failed, "over time", "not reached", or why it was not run
    seconds: float = 0.0
    log: str = ""


class Runner:
    """`say` gets a line of progress."""

    def __init__(
        self, machine: Machine, out: Path, seconds: float, say: Callable[[str], None]
    ) -> None:
        self._machine, self._out, self._say = machine, out, say
        self._end = time.monotonic() + seconds
        self._whole_s = seconds
        self._free = list(range(machine.gpus))
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
                self._collect()
                time.sleep(TICK_S)
        finally:
            for part, command, _ in self._running:
                command.end()
                self._note(part, "over time", command)

    def _is_done(self, part: Part) -> bool:
        known = self.results.get(part.name)
        return known is not None and known.outcome in ("passed", "failed")

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
            self._start(part, min(left, part.share * self._whole_s))
        return True

    def _is_blocked(self, part: Part) -> bool:
        # Beside a part without GPUs others may run, but not where one measures.
        if part.alone or any(running.alone for running, _, _ in self._running):
            return bool(self._running)
        if any(running.name == "build" for running, _, _ in self._running):
            return True
        return part.gpus > len(self._free) or (part.gpus == 0 and len(self._running) > 1)

    def _start(self, part: Part, limit_s: float) -> None:
        gpus = [self._free.pop(0) for _ in range(part.gpus)]
        environment = dict(self._machine.environment)
        environment["PYTHONPATH"] = f"{ROOT / 'tools'}:{ROOT}"
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        if part.world:
            environment[each_test.VARIABLE] = str(self._out / f"{part.name}.jsonl")
            environment[each_test.WORLD] = part.world
        log = self._out / f"{part.name}.log"
        self._running.append((part, Command(part.argv, environment, log, ROOT, limit_s), gpus))
        where = f" on GPUs {gpus}" if gpus else ""
        self._say(f"{part.name}: begins{where}, {limit_s:.0f} s at most")

    def _collect(self) -> None:
        still = []
        for part, command, gpus in self._running:
            if not command.is_over():
                still.append((part, command, gpus))
                continue
            self._free = sorted(self._free + gpus)
            late = command.status == LATE and command.seconds > command.limit_s
            self._note(
                part, "over time" if late else "failed" if command.status else "passed", command
            )
        self._running = still

    def _note(self, part: Part, outcome: str, command: Command | None = None) -> None:
        result = Result(part.name, part.title, outcome)
        if command is not None:
            result.seconds = round(command.seconds, 1)
            result.log = f"{part.name}.log"
        self.results[part.name] = result
        self._say(f"{part.name}: {outcome}" + (f" ({result.seconds} s)" if command else ""))
        rows = [asdict(each) for each in self.results.values()]
        (self._out / STATE).write_text(json.dumps(rows, indent=1) + "\n")


def say_on_stderr(begin: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    return say
