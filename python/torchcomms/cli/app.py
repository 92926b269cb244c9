"""The command tree. Each command's module says what it takes; this file only names them."""

from __future__ import annotations

import typer

from torchcomms.cli.algorithms import algorithms
from torchcomms.cli.bench import bench
from torchcomms.cli.doctor import doctor
from torchcomms.cli.drill import drill
from torchcomms.cli.events import events
from torchcomms.cli.sim import EXAMPLES, sim
from torchcomms.cli.soak import soak
from torchcomms.cli.trace import trace
from torchcomms.cli.tune import tune

app = typer.Typer(
    help="Tools around torchcomms: look at this machine, measure it, read what happened.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(doctor)
app.command()(bench)
app.command()(algorithms)
app.command()(tune)
app.command()(events)
app.command()(trace)
app.command(epilog=EXAMPLES)(sim)
app.command()(drill)
app.command()(soak)


@app.callback(invoke_without_command=True)
def _common(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        import torchcomms

        print(torchcomms.__version__)
        raise typer.Exit()
