"""Ranks in whose processes one call for shared memory fails: memory_faults.c is preloaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


def library(folder: Path) -> Path:
    """Builds the library there. Skips where there is no compiler of C."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    built = folder / "memory_faults.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return built


def variables(built: Path, rank: int, at: int, error: int) -> dict[str, str]:
    """For ranks of a job: call number `at` of `rank` fails with `error`."""
    return {
        "LD_PRELOAD": str(built),
        "FAULT_RANK": str(rank),
        "FAULT_AT": str(at),
        "FAULT_ERRNO": str(error),
    }
