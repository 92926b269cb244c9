"""Environment variables of the tests: what a run must not inherit, and scoped changes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

# Everything that could tell a process its rank, its rendezvous or a default of ours.
_FOREIGN = (
    "TORCHCOMM", "OMPI_", "PMI_", "PMIX_", "PALS_", "SLURM_", "TORCHELASTIC_", "MASTER_",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
    "TORCH_DISTRIBUTED_USE_TORCHCOMMS",
)  # fmt: skip


def is_foreign(name: str) -> bool:
    """True for a variable that would leak the caller's job into a test."""
    return name.startswith(_FOREIGN)


def drop_foreign() -> None:
    """Removes from this process every variable that `is_foreign` names."""
    for name in [n for n in os.environ if is_foreign(n)]:
        del os.environ[name]


def neutral_environment(**variables: str) -> dict[str, str]:
    """Our environment without a job's or a test's settings; one computing thread."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not is_foreign(name) and not name.startswith(("PYTHON", "PYTEST"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", **variables}


@contextlib.contextmanager
def environment(**changes: str | None) -> Iterator[None]:
    """Sets (or, for None, removes) variables for the duration of the block."""
    before = {name: os.environ.get(name) for name in changes}
    _apply(changes)
    try:
        yield
    finally:
        _apply(before)


def _apply(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
