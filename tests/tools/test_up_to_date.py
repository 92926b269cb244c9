"""Files that programs write, and the list of files that tools/find_test.toml names, are current."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HAS_TOMLLIB = sys.version_info >= (3, 11)


@pytest.mark.parametrize("program", ["house.py", "glossary.py", "stubs.py"])
def test_what_a_program_writes_is_up_to_date(program: str) -> None:
    if program == "stubs.py" and importlib.util.find_spec("pybind11_stubgen") is None:
        pytest.skip("pybind11-stubgen is only in the default workspace of ./dev")
    if not HAS_TOMLLIB:
        pytest.skip("tomllib comes with Python 3.11")
    command = [sys.executable, str(ROOT / "tools" / program), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not HAS_TOMLLIB, reason="tomllib comes with Python 3.11")
def test_the_answers_to_find_questions_are_files() -> None:
    import tomllib

    questions = tomllib.loads((ROOT / "tools" / "find_test.toml").read_text())["question"]
    files = [file for question in questions for file in question["files"]]
    assert [file for file in files if not (ROOT / file).is_file()] == []
