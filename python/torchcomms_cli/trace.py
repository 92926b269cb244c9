"""`torchcomms trace`: reads records of ranks, prints the verdict or the timeline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def trace(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A folder of records, or one record per rank: files of event rings, or flight "
            "recorder dumps. Default: the newest job of this machine."
        ),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
    with_stacks: Annotated[
        bool,
        typer.Option(
            "--stacks", help="Also print the Python stacks of the ranks to look at, if they run."
        ),
    ] = False,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            help="Write a timeline here, for ui.perfetto.dev or chrome://tracing; -: stdout, no "
            "verdict."
        ),
    ] = None,
    torch_dumps: Annotated[
        Path | None,
        typer.Option("--torch", help="Write one dump per rank to this folder, for torchfrtrace."),
    ] = None,
) -> None:
    """Say which rank a hung job waits for, in what and since when, or whose call differs.

    The job needs no preparation: every process keeps a record in a file, which can be read while
    the process hangs and after it was killed. Dumps of FlightRecorderHook can be read, too. Exit
    status 0: nothing is wrong in the records; 1: something is; 2: the input is not valid.
    """
    from torchcomms import CommError, _output, analyze, events
    from torchcomms._table import printable

    if as_json and perfetto == _output.STDOUT:
        raise typer.BadParameter("--json and --perfetto - both write to stdout")
    try:
        _output.prepare(perfetto, torch_dumps and torch_dumps / "rank_0")

        def read() -> list[analyze.Dump]:
            if records:
                return analyze.read(records)
            return analyze.read_newest(map(Path, events.folders()))

        dumps = read()
        verdict = analyze.analyze(dumps)
        if not verdict.ok and any(p.state == "running" for p in verdict.processes.values()):
            dumps = read()  # a job that makes progress shows something else now
            verdict = analyze.analyze(dumps, verdict)
        stacks = {
            rank: analyze.stacks(verdict.processes[rank])
            for rank in (verdict.culprits if with_stacks else ())
            if rank in verdict.processes
        }
        if perfetto is not None:
            timeline = json.dumps(analyze.to_timeline(dumps, verdict.looked_ns))
            if perfetto == _output.STDOUT:
                print(timeline)
            else:
                _output.write(perfetto, timeline)
        if torch_dumps is not None:
            analyze.write_flight_recorder(dumps, torch_dumps)
    except (analyze.AnalyzeError, CommError, OSError) as error:
        print(printable(f"torchcomms trace: {error}"), file=sys.stderr)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps({**verdict.to_dict(), "stacks": stacks}, indent=2))
    elif perfetto != _output.STDOUT:
        print(analyze.to_text(verdict, stacks))
    raise typer.Exit(0 if verdict.ok else 1)
