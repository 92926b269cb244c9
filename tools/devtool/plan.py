"""What is left of a long command, and how long that took the last time."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Iterator, Mapping

from .paths import STATE
from .shell import clock, say


class Plan:
    """The parts of a command, in order, each announced with the time that is left.

    The times are those of the last run in this checkout, which are kept in its folder .dev. Before
    the first run they are those that `measured` names.
    """

    def __init__(self, command: str, seconds: Mapping[str, float], measured: str) -> None:
        """`seconds`: of each part, by its title."""
        self._command = command
        self._file = STATE / f"{command}.json"
        self._seconds, self._measured = dict(seconds), measured
        self._began: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self._file.read_text())
            if kept.keys() == self._seconds.keys():
                self._seconds, self._measured = kept, "the last run here"

    @contextlib.contextmanager
    def part(self, title: str) -> Iterator[None]:
        """Announces the part, and keeps how long it took unless it raises."""
        left = sum(took for name, took in self._seconds.items() if name not in self._began)
        self._began.append(title)
        number = f"part {len(self._began)} of {len(self._seconds)}"
        say(f"{self._command}, {number}, {title}: {clock(left)} left, as in {self._measured}")
        began = time.monotonic()
        yield
        self._keep(title, time.monotonic() - began)

    def _keep(self, title: str, took: float) -> None:
        self._seconds[title] = round(took, 1)
        if len(self._began) == len(self._seconds):
            STATE.mkdir(exist_ok=True)
            self._file.write_text(json.dumps(self._seconds))
