"""The questions by which the tree is held against a newcomer's guess have answers that exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("tomllib comes with Python 3.11", allow_module_level=True)

import tomllib

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = tomllib.loads((ROOT / "tools" / "find_test.toml").read_text())["question"]


def test_there_are_twenty():
    assert len({question["ask"] for question in QUESTIONS}) == 20


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["files"][0])
def test_its_files_exist(question):
    missing = [file for file in question["files"] if not (ROOT / file).is_file()]
    assert not missing, f"{question['ask']} The answer has moved: {missing}"
