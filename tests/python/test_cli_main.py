"""The `torchcomms` command as a program."""

from __future__ import annotations

import sys
import typing

import pytest
import torchcomms
from torchcomms_cli.app import app
from typer.testing import CliRunner

from tests.harness.programs import forked, python, together


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
    assert "'examine'" in unknown.err
    assert "doctor, bench, algorithms, tune, " in unknown.err
    assert mistyped.code == 2
    assert "did you mean drill?" in mistyped.err


def test_a_variable_that_cannot_be_read_is_one_line():
    command = [sys.executable, "-m", "torchcomms", "events"]
    (done,) = together([(command, {"TORCHCOMM_TIMEOUT_SECONDS": "abc"})], 60.0)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("torchcomms events: ")
    assert "TORCHCOMM_TIMEOUT_SECONDS" in done.err


def test_no_option_takes_what_is_not_a_finite_number():
    options = [
        (command.callback.__name__, "--" + parameter.replace("_", "-"))
        for command in app.registered_commands
        for parameter, kind in typing.get_type_hints(command.callback).items()
        if kind in (float, float | None)
    ]
    assert {name for name, _ in options} == {"bench", "doctor", "drill", "sim", "soak", "tune"}
    for name, option in options:
        for value in ("nan", "inf", "-inf"):
            done = CliRunner().invoke(app, [name, option, value])
            assert done.exit_code == 2, (name, option)
            if name == "doctor":  # it has a least and a largest value, too
                assert option in done.stderr
                continue
            says = f"{option}: {value} is not a finite number"
            assert done.stderr == f"torchcomms {name}: {says}\n"


@pytest.mark.parametrize(
    "command",
    [
        "events",
        "events --json",
        "algorithms",
        "sim barrier --ranks 4 --json FILE",
        "drill F01/idle --backend gloo --json FILE",
    ],
)
def test_where_stdout_cannot_be_written_the_status_is_2_and_files_are_there(command, tmp_path):
    source = """
        import os, sys
        from torchcomms_cli import main
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        sys.argv[:1] = ["torchcomms"]
        main()
    """
    file = tmp_path / "results"
    words = command.replace("FILE", str(file)).split()
    done = forked(source, *words)
    assert done.code == 2, done.err
    wrong = "stdout cannot be written: No space left on device"
    assert done.err.splitlines()[-1] == f"torchcomms {words[0]}: {wrong}"
    assert "Traceback" not in done.err
    assert ("FILE" not in command) or file.read_text()


def test_whoever_reads_the_output_may_leave():
    done = forked("""
        import os, sys
        from torchcomms_cli import main
        reads, writes = os.pipe()
        os.dup2(writes, 1)
        os.close(writes)
        os.close(reads)
        sys.argv = ["torchcomms", "algorithms"]
        main()
    """)
    assert (done.code, done.err) == (2, "")


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
