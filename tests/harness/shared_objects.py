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


@functools.cache
def shared_object(name: str) -> Path:
    """The library made of `<name>.c` in this folder; skips the test without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc, clang) for the library that the test preloads")
    folder = Path(tempfile.gettempdir(), f"torchcomms-tests-{os.getuid()}-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    library = folder / f"{name}.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library]
    subprocess.run([*command, HERE / f"{name}.c", "-ldl"], check=True)
    return library
