"""What this machine can carry."""

from __future__ import annotations

import os


def parallel_jobs() -> int:
    """Compile jobs: one a core, and 2 GiB of memory for each (torch's headers take 1.5)."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, memory // (2 << 30)))
