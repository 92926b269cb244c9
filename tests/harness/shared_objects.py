"""Small C libraries of the tests, compiled when first wanted; most are for LD_PRELOAD."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def answer_lookups_at_once() -> None:
    """Has every process that is started from here on answer reverse name lookups with the number.

    torch looks up the name behind each connection of a store. A name server that loses one packet
    in fifty would make that the longest part of the tests. Does nothing without a C compiler, and
    where something else is preloaded.
    """
    if _compiler() is not None:
        os.environ.setdefault("LD_PRELOAD", str(shared_object("slow_names")))


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@functools.cache
def shared_object(name: str) -> Path:
    """The library made of `<name>.c` in this folder; skips the test without a C compiler."""
    compiler = _compiler()
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc, clang) for the library that the test preloads")
    folder = Path(tempfile.gettempdir(), f"torchcomms-tests-{os.getuid()}-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    library = folder / f"{name}.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library]
    subprocess.run([*command, HERE / f"{name}.c", "-ldl"], check=True)
    return library
