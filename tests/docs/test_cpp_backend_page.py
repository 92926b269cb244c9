"""The page about C++ backends, followed to the letter: save the source, build it, use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks

PAGE = ROOT / "docs" / "extending" / "cpp_backend.md"
LIMIT_S = 300.0


def _only(language: str) -> Block:
    (block,) = [b for b in blocks(PAGE) if b.language == language]
    return block


def _run(command: list[str], cwd: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # `python` is this interpreter
    env = {
        **os.environ,
        "PATH": path,
        "TORCHCOMM_RANK": "0",
        "TORCHCOMM_SIZE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


def test_the_backend_of_the_page_builds_and_runs(tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler called c++ on this machine")
    if shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is None:
        pytest.skip("no cmake on this machine")
    for language, comment in (("cpp", "// "), ("cmake", "# ")):
        source = _only(language)
        name = source.text.splitlines()[0].removeprefix(comment)
        (tmp_path / name).write_text(source.text)
    _run(["sh", "-e", "-c", _only("sh").text], tmp_path)
    _run([sys.executable, "-c", _only("python").text], tmp_path)
