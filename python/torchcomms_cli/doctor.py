"""`torchcomms doctor`: examines the machine, prints the report, exits with 0 or 1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torchcomms.doctor.report import Level

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, max=86400, help="Seconds for the all_reduce of each backend (60)."),
    ] = None,
) -> None:
    """Examine this machine: versions, libraries, GPUs, backends, limits, network, launcher.

    Runs one all_reduce on two processes for every backend that works here (a vendor's on all GPUs).
    For every other backend, says why it does not work. Exit status 0: no problem was found; 1:
    problems were found, each with what to do.
    """
    from torchcomms.doctor import examine, to_text

    report = examine() if timeout is None else examine(timeout)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        typer.echo(to_text(report, _mark))
    raise typer.Exit(0 if report.ok else 1)


def _mark(level: Level, text: str) -> str:
    return typer.style(text, fg=_COLOURS[level], bold=level != "ok")
