"""Help, the version and completion answer at once: torch, which takes seconds, is not imported."""

from __future__ import annotations

import sys

import torchcomms

from tests.docs.test_cli_page import COMMANDS
from tests.harness.programs import together

# The command line, which afterwards looks for what it must not have imported.
PROGRAM = """
import sys
from torchcomms_cli import main
sys.argv[0] = "torchcomms"
try:
    main()
finally:
    if heavy := {"torch", "torchcomms", "numpy", "matplotlib"} & sys.modules.keys():
        sys.exit(f"imported: {heavy}")
"""


def _answers(runs: list[tuple[list[str], dict[str, str]]]) -> list[str]:
    command = [sys.executable, "-c", PROGRAM]
    finished = together([([*command, *words], variables) for words, variables in runs], 60.0)
    return [each.expect_success().out for each in finished]


def test_help_needs_no_torch() -> None:
    runs = [["--help"], *([command, "--help"] for command in COMMANDS)]
    of_all, *of_each = _answers([(words, {}) for words in runs])
    for command, text in zip(COMMANDS, of_each, strict=True):
        assert f"Usage: torchcomms {command} " in text
        assert f"\n  {command} " in of_all


def test_the_list_of_commands_says_each_in_a_whole_sentence() -> None:
    [text] = _answers([(["--help"], {})])
    assert "..." not in text.partition("Commands:")[2]


def test_the_version_needs_no_torch() -> None:
    assert _answers([(["--version"], {})]) == [f"{torchcomms.__version__}\n"]


def test_completion_needs_no_torch() -> None:
    shell = {"_TORCHCOMMS_COMPLETE": "complete_bash"}
    commands, options = _answers(
        [
            ([], {**shell, "COMP_WORDS": "torchcomms ", "COMP_CWORD": "1"}),
            ([], {**shell, "COMP_WORDS": "torchcomms bench --gr", "COMP_CWORD": "2"}),
        ]
    )
    assert set(commands.split()) == set(COMMANDS)
    assert options.split() == ["--graph-operations"]


def test_what_is_imported_is_found() -> None:
    """That the tests above can fail: a command that runs does import torch."""
    [finished] = together([([sys.executable, "-c", PROGRAM, "drill", "--list"], {})], 60.0)
    assert finished.code == 1
    assert "'torch'" in finished.err
