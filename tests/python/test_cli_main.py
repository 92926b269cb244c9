"""The `torchcomms` command as a program."""

from __future__ import annotations

import sys

import torchcomms

from tests.harness.programs import python, together


def test_the_command_is_also_a_module():
    command = [sys.executable, "-m", "torchcomms"]
    version, nothing, unknown, mistyped = together(
        [
            ([*command, "--version"], {}),
            (command, {}),
            ([*command, "examine"], {}),
            ([*command, "drll", "--list"], {}),
        ],
        60.0,
    )
    assert version.expect_success().out == f"{torchcomms.__version__}\n"
    assert "doctor" in nothing.err
    assert unknown.code == 2
    assert "no command 'examine'; there are doctor, bench, algorithms, tune, " in unknown.err
    assert mistyped.code == 2
    assert "no command 'drll'; did you mean drill?" in mistyped.err


def test_importing_the_package_imports_no_tool():
    python(
        """
        import sys, torchcomms
        tools = {"typer", "rich", "matplotlib", "torchcomms_cli", "torchcomms.bench",
                 "torchcomms.doctor"}
        assert not tools & sys.modules.keys(), tools & sys.modules.keys()
    """
    ).expect_success()


def test_a_missing_library_of_the_command_line_is_one_sentence():
    finished = python(
        """
        import sys
        sys.modules["rich"] = sys.modules["typer"] = None
        from torchcomms_cli import main
        main()
    """
    )
    assert finished.code == 1
    assert finished.err.startswith("torchcomms: the command line needs typer")
    assert finished.err.strip().endswith("-m pip install typer rich")
