"""The command tree: it names the commands, whose modules define their options."""

from __future__ import annotations

import difflib
import importlib.util
import runpy
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from torchcomms_cli.algorithms import algorithms
from torchcomms_cli.bench import bench
from torchcomms_cli.doctor import doctor
from torchcomms_cli.drill import drill
from torchcomms_cli.events import events
from torchcomms_cli.finite import FiniteCommand
from torchcomms_cli.sim import EXAMPLES, sim
from torchcomms_cli.soak import soak
from torchcomms_cli.trace import trace
from torchcomms_cli.tune import tune


class _Commands(TyperGroup):
    """A group whose error for an unknown command lists the known ones."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        wrong = args[0] if args else ""
        known = self.list_commands(ctx)
        if not (ctx.resilient_parsing or wrong.startswith("-") or wrong in known):
            near = difflib.get_close_matches(wrong, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(known)}"
            ctx.fail(f"unknown command {wrong!r}; {hint}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Tools for torchcomms: examine this machine, measure it, and analyze jobs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _run, _short_help, _epilog in (
    (doctor, "Examine whether torchcomms works here, and say why not.", None),
    (bench, "Measure operations, one backend next to the other.", None),
    (algorithms, "List the algorithms, their costs, and which is chosen.", None),
    (tune, "Measure the algorithms here, and choose by that.", None),
    (events, "Show what the event ring of a process looks like.", None),
    (trace, "Say which rank a hung job waits for, in what, since when.", None),
    (sim, "Simulate a collective or a start on up to 1,000,000 ranks.", EXAMPLES),
    (drill, "Inject faults, and judge what surviving ranks see.", None),
    (soak, "Run random operations, and check every value.", None),
):
    app.command(cls=FiniteCommand, short_help=_short_help, epilog=_epilog)(_run)


@app.callback(invoke_without_command=True)
def _common(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        print(_version())
        raise typer.Exit()


def _version() -> str:
    """Returns `torchcomms.__version__` without importing torch, which takes seconds."""
    package = importlib.util.find_spec("torchcomms")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'torchcomms'", name="torchcomms")
    facts = runpy.run_path(str(Path(package.origin).with_name("_build_info.py")))
    return str(facts["VERSION"])
