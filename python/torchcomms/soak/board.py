"""The progress of every rank, in memory that all processes of a soak map.

The progress of an exited rank remains readable.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from torchcomms.soak.rank import PHASES

_FIELDS = 3  # per rank: step, operation, phase
_FIELD_BYTES = 8


class Board:
    """The step, operation and phase of each rank. Each rank writes its own; any process may read.

    A reader may see a part of a change.
    """

    def __init__(self, path: Path, ranks: int) -> None:
        """Maps the file. The first caller makes it."""
        with path.open("a+b") as file:
            file.truncate(ranks * _FIELDS * _FIELD_BYTES)
            self._memory = mmap.mmap(file.fileno(), 0)
        self._fields = memoryview(self._memory).cast("q")

    def write(self, rank: int, step: int, operation: int, phase: str) -> None:
        first = rank * _FIELDS
        self._fields[first] = step
        self._fields[first + 1] = operation
        self._fields[first + 2] = PHASES.index(phase)

    def read(self, rank: int) -> tuple[int, int, str]:
        """Returns step, operation and phase of a rank."""
        first = rank * _FIELDS
        return self._fields[first], self._fields[first + 1], PHASES[self._fields[first + 2]]
