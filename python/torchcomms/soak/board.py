"""Where every rank is: memory that all processes of a soak map, so that a dead rank still tells."""

from __future__ import annotations

import mmap
from pathlib import Path

from torchcomms.soak.rank import PHASES

_WORDS = 3  # of a rank: step, operation, phase
_WORD_BYTES = 8


class Board:
    """One writer a rank; anyone may read at any time. A reader may see half of a change."""

    def __init__(self, path: Path, ranks: int) -> None:
        """The file is made by the first who comes."""
        with path.open("a+b") as file:
            file.truncate(ranks * _WORDS * _WORD_BYTES)
            self._memory = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._memory).cast("q")

    def write(self, rank: int, step: int, operation: int, phase: str) -> None:
        first = rank * _WORDS
        self._words[first] = step
        self._words[first + 1] = operation
        self._words[first + 2] = PHASES.index(phase)

    def read(self, rank: int) -> tuple[int, int, str]:
        """Step, operation, phase."""
        first = rank * _WORDS
        return self._words[first], self._words[first + 1], PHASES[self._words[first + 2]]
