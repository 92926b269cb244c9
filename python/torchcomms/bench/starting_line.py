"""A barrier in shared memory that ranks of one host leave within about a microsecond.

A barrier with messages releases ranks at times that differ by more than many of the measured calls
take.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic

_LINE = 64  # bytes of a cache line, so that no two ranks write to the same one
_SHARED = Path("/dev/shm")  # in memory, if the system has it
_LOOKS_PER_CLOCK = 1024


class StartingLine:
    """One counter per rank, in memory that all ranks map. For one thread."""

    def __init__(self, memory: mmap.mmap, rank: int, size: int, limit_s: float) -> None:
        self._counters = memoryview(memory).cast("Q")
        self._own_offset = rank * _LINE // 8
        self._peer_offsets = [r * _LINE // 8 for r in range(size) if r != rank]
        self._turn = 0
        self._limit_s = limit_s
        self._yields = size > len(os.sched_getaffinity(0))

    @staticmethod
    def make(
        rank: int,
        size: int,
        limit_s: float,
        broadcast_text: Callable[[str], str],
        all_agree: Callable[[bool], bool],
    ) -> StartingLine | None:
        """Makes the barrier. Collective.

        Args:
            broadcast_text: returns on all ranks the text that rank 0 passed.
            all_agree: returns whether all ranks passed True.

        Returns: None on all ranks if one of them cannot map the memory of rank 0.
        """
        path = ""
        if rank == 0:
            path = _new_file(size * _LINE)
        try:
            path = broadcast_text(path)
            memory = _mapped(path, size * _LINE)
            if not all_agree(memory is not None) or memory is None:
                return None
            return StartingLine(memory, rank, size, limit_s)
        finally:
            if rank == 0 and path:
                Path(path).unlink(missing_ok=True)

    def meet(self) -> None:
        """Returns when every rank has called it. Raises TimeoutError after the timeout."""
        self._turn += 1
        counters, turn, looks = self._counters, self._turn, 0
        counters[self._own_offset] = turn
        deadline = None
        for other in self._peer_offsets:
            while counters[other] < turn:
                looks += 1
                if self._yields:
                    os.sched_yield()
                if looks % _LOOKS_PER_CLOCK:
                    continue
                deadline = deadline or monotonic() + self._limit_s
                if monotonic() > deadline:
                    raise TimeoutError(
                        f"a rank has not reached the start of a sample within {self._limit_s:g} s"
                    )


def _new_file(size: int) -> str:
    """Makes a file of zeros. Returns its path, or "" if there is no space for it."""
    try:
        place = _SHARED if os.access(_SHARED, os.W_OK) else None
        descriptor, path = tempfile.mkstemp(prefix="torchcomms-bench-", dir=place)
    except OSError:
        return ""
    with os.fdopen(descriptor, "wb") as file:
        file.truncate(size)
    return path


def _mapped(path: str, size: int) -> mmap.mmap | None:
    """Maps the file. Returns None if it is on another host, or if there is none."""
    if not path:
        return None
    try:
        with open(path, "r+b") as file:
            return mmap.mmap(file.fileno(), size)
    except (OSError, ValueError):
        return None
