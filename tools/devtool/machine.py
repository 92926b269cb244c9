"""What this machine can carry."""

from __future__ import annotations

import os


def parallel_jobs() -> int:
    """Compile jobs: one a core, and 2 GiB of memory for each (torch's headers take 1.5)."""
    return _at_most(_cores())


def parallel_tests() -> int:
    """Test processes: three for two cores, as many tests wait for limits or for what they end.

    Each has up to 30 ranks, which share the memory that torch takes.
    """
    return _at_most(_cores() + _cores() // 2)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _at_most(processes: int) -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(processes, memory // (2 << 30)))
