"""Every program in the documentation runs.

```python           blocks of one page run in order, in one process, as the only rank of its job
```python notest    is only compiled: it needs what a test machine may lack
`# run: torchrun --nproc-per-node 2` as first line: the block is a program of its own, run so
```console run      its `$ torchcomms ...` lines are executed and must succeed
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.docs.markdown import Block, blocks, name_of, pages
from tests.harness.programs import forked, launched, module, torchrun

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


def needs(*texts: str) -> tuple[str, ...]:
    """What a program that trains or compiles would spend seconds to import."""
    heavy = ("torch.nn", "torch.optim", "torchcomms import functional", "torch.compile")
    return ("torch._dynamo",) if any(word in text for word in heavy for text in texts) else ()


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    forked(
        RUNNER,
        stdin=json.dumps([str(page), [(b.line, b.text) for b in _alone(page)]]),
        folder=tmp_path,
        needs=needs(*(b.text for b in _alone(page))),
        deadline=LIMIT_S,
        TORCHCOMM_RANK="0",
        TORCHCOMM_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
    ).expect_success()


@pytest.mark.parametrize(
    ("page", "block"), LAUNCHED, ids=[f"{name_of(page)}:{block.line}" for page, block in LAUNCHED]
)
def test_launched_programs_run(page: Path, block: Block, tmp_path: Path) -> None:
    """As torchrun starts them; the first of all by torchrun itself."""
    ranks = TORCHRUN.match(block.text)
    assert ranks
    program = tmp_path / "program.py"
    program.write_text(block.text)
    if (page, block) == LAUNCHED[0]:
        torchrun(program, int(ranks[1]), deadline=LIMIT_S).expect_success()
        return
    ended = launched(
        program, int(ranks[1]), folder=tmp_path, deadline=LIMIT_S, needs=needs(block.text)
    )
    for finished in ended:
        finished.expect_success()


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{name_of(page)}: {line}" for page, line in COMMANDS]
)
def test_commands_succeed(page: Path, command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "torchcomms", f"{name_of(page)}: only torchcomms commands can be marked run"
    module(program, *arguments, folder=tmp_path, deadline=LIMIT_S).expect_success()


@pytest.mark.parametrize(
    ("page", "block"), UNTESTED, ids=[f"{name_of(page)}:{block.line}" for page, block in UNTESTED]
)
def test_blocks_that_are_not_run_compile(page: Path, block: Block) -> None:
    compile(block.text, name_of(page), "exec")


def test_there_is_something_to_run() -> None:
    """Guards the search itself: an empty list of pages would pass everything."""
    assert len(WITH_BLOCKS) >= 5
    assert LAUNCHED
