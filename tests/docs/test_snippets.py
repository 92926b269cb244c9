"""Every program in the documentation runs.

```python           blocks of one page run in order, in one process, as the only rank of its job
```python notest    is only compiled: it needs what a test machine may lack
`# run: torchrun --nproc-per-node 2` as first line: the block is a program of its own, run so
```console run      its `$ torchcomms ...` lines are executed and must succeed
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import Block, blocks, name_of, pages

LIMIT_S = 240.0
TORCHRUN = re.compile(r"# run: torchrun --nproc-per-node (\d+)\n")

PAGES = pages()


def _python(page: Path) -> list[Block]:
    return [b for b in blocks(page) if b.language == "python" and "notest" not in b.words]


def _alone(page: Path) -> list[Block]:
    return [b for b in _python(page) if not TORCHRUN.match(b.text)]


WITH_BLOCKS = [page for page in PAGES if _alone(page)]
LAUNCHED = [(page, b) for page in PAGES for b in _python(page) if TORCHRUN.match(b.text)]
COMMANDS = [
    (page, line.removeprefix("$ "))
    for page in PAGES
    for block in blocks(page)
    if block.language == "console" and "run" in block.words
    for line in block.text.splitlines()
    if line.startswith("$ ")
]
UNTESTED = [
    (page, b) for page in PAGES for b in blocks(page)
    if b.language == "python" and "notest" in b.words
]  # fmt: skip

# Runs the blocks it reads, as the main program that they are in a reader's hands; padding makes a
# traceback point at the line in the page.
RUNNER = """
import json, sys
_page, _blocks = json.load(sys.stdin)
for _line, _text in _blocks:
    exec(compile("\\n" * (_line - 1) + _text, _page, "exec"), globals())
"""


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def _run(command: list[str], cwd: Path, env: dict[str, str], text: str | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=env, input=text, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    env = _environment(
        TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0"
    )
    program = json.dumps([str(page), [(b.line, b.text) for b in _alone(page)]])
    _run([sys.executable, "-c", RUNNER], tmp_path, env, program)


@pytest.mark.parametrize(
    ("page", "block"), LAUNCHED, ids=[f"{name_of(page)}:{block.line}" for page, block in LAUNCHED]
)
def test_launched_programs_run(page: Path, block: Block, tmp_path: Path) -> None:
    ranks = TORCHRUN.match(block.text)
    assert ranks
    program = tmp_path / "program.py"
    program.write_text(block.text)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks[1]]
    _run([sys.executable, *launcher, str(program)], tmp_path, _environment())


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{name_of(page)}: {line}" for page, line in COMMANDS]
)
def test_commands_succeed(page: Path, command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "torchcomms", f"{name_of(page)}: only torchcomms commands can be marked run"
    _run([sys.executable, "-m", "torchcomms", *arguments], tmp_path, _environment())


@pytest.mark.parametrize(
    ("page", "block"), UNTESTED, ids=[f"{name_of(page)}:{block.line}" for page, block in UNTESTED]
)
def test_blocks_that_are_not_run_compile(page: Path, block: Block) -> None:
    compile(block.text, name_of(page), "exec")


def test_there_is_something_to_run() -> None:
    """Guards the search itself: an empty list of pages would pass everything."""
    assert len(WITH_BLOCKS) >= 5
    assert LAUNCHED
