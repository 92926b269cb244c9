"""docs/reference/cli.md lists the commands and options there are, with their defaults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.markdown import ROOT, code_spans, rows

PAGE = ROOT / "docs" / "reference" / "cli.md"
COMMANDS = ("doctor", "bench", "algorithms", "tune", "events", "trace", "sim", "drill", "soak")


def _program() -> Any:
    import typer
    from torchcomms_cli.app import app

    return typer.main.get_command(app)


def _options_of_all() -> set[str]:
    return {name for parameter in _program().params for name in parameter.opts}


def _options(command: str) -> dict[str, Any]:
    """Options of a command, each under the one name that the page gives it."""
    out = {}
    for parameter in _program().commands[command].params:
        if parameter.param_type_name == "option":
            # Of a pair --x/--no-x the one that changes something is worth naming.
            names = parameter.secondary_opts if parameter.default is True else parameter.opts
            out[names[0]] = parameter.default
    return out


def _documented(command: str) -> dict[str, str]:
    found = [row for row in rows(PAGE) if row.heading == command and "option" in row.cells]
    return {code_spans(row.cells["option"])[0]: row.cells["default"].strip("`") for row in found}


def test_the_page_names_every_command() -> None:
    named = {
        row.cells["command"].strip("`").split()[-1] for row in rows(PAGE) if "command" in row.cells
    }
    assert named == {*_program().commands, *_options_of_all()}
    assert set(_program().commands) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_the_programs(command: str) -> None:
    documented = _documented(command) if command != "events" else {"--json": ""}
    assert set(documented) == set(_options(command))


@pytest.mark.parametrize(
    "command", ["doctor", "bench", "algorithms", "tune", "sim", "drill", "soak"]
)
def test_defaults_are_the_programs(command: str) -> None:
    options = _options(command)
    wrong = {
        name: (text, options[name])
        for name, text in _documented(command).items()
        if text and options[name] is not None and text != f"{options[name]}".removesuffix(".0")
    }
    assert not wrong, f"(documented, real): {wrong}"
