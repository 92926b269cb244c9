"""The table of rooms in HACKING.md is that of tools/house.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import house  # noqa: E402


def test_the_table_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "house.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_table_replaces_the_one_between_the_markers() -> None:
    page = f"a\n{house.BEGIN}stale\n{house.END}b\n"
    new = house.with_table(page, [{"name": "base", "says": "sockets"}])
    assert "stale" not in new
    assert "| `src/base` | sockets |" in new
    assert new.startswith("a\n")
    assert new.endswith("b\n")


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="not found"):
        house.with_table("a page", [])
