"""The `torchcomms` command: doctor, bench, algorithms, tune, events, trace, sim, drill, soak.

The command is a thin layer over the packages of the same names in `torchcomms`. A subcommand
imports its package only when it runs: importing torch takes seconds, and help, version and
completions do not need it. Therefore this package lies beside `torchcomms`, not inside it. Only
`main()` imports typer and rich, so programs that import torchcomms do not pay for them.
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
