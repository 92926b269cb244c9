"""`torchcomms analyze`: dumps in, verdict out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def analyze(
    dumps: Annotated[
        list[Path], typer.Argument(help="Flight recorder dumps, one a rank, or a folder of them.")
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
) -> None:
    """Say which rank a hung job waits for, and in which operation, or whose call differs.

    Reads what FlightRecorderHook.dump_json() returned or dump_file() wrote on each rank. The rank
    is the dump's own word, else the number that the file's name ends with. Exit status 0: nothing
    is wrong in the records; 1: something is; 2: the input makes no sense.
    """
    from torchcomms import analyze as analyzer

    try:
        verdict = analyzer.analyze(analyzer.read(dumps))
    except analyzer.AnalyzeError as error:
        print(f"torchcomms analyze: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print(json.dumps(verdict.to_dict(), indent=2) if as_json else analyzer.to_text(verdict))
    raise typer.Exit(0 if verdict.ok else 1)
