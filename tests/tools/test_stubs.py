"""The committed type stubs are what the built modules say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    importlib.util.find_spec("pybind11_stubgen") is None,
    reason="pybind11-stubgen is only in the default workspace of ./dev",
)
def test_stubs_are_up_to_date() -> None:
    command = [sys.executable, ROOT / "tools" / "stubs.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
