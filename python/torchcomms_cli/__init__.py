"""The `torchcomms` command: doctor, bench, events, trace, sim, drill, soak.

A thin layer over the packages of the same names in `torchcomms`, which a command imports when it
runs and not before: torch takes seconds, and help, the version and completions need none of it.
So this is a package beside `torchcomms`, not one inside it. typer and rich are imported by `main()`
only: a program that imports torchcomms never pays for them.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line of this process and exits with its status."""
    try:
        from torchcomms_cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"torchcomms: the command line needs {error.name}, which is not installed here: "
            f"{sys.executable} -m pip install typer rich"
        )
    app(prog_name="torchcomms")
