"""`torchcomms soak`: parses arguments, runs random operations, prints the first wrong value."""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcomms_cli.progress import status_line

if TYPE_CHECKING:
    from torchcomms.soak import Outcome, Request


def soak(
    *,
    backend: Annotated[str, typer.Option(help="One of ctran, gloo, nccl, ncclx, ...")] = "ctran",
    device: Annotated[str, typer.Option(help="Where the tensors are: cpu, cuda.")] = "cpu",
    ranks: Annotated[
        int | None, typer.Option(help="Processes to start; one per GPU, 2 on cpu.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Duration; steps in flight are finished.")] = 1.0,
    steps: Annotated[
        int | None, typer.Option(help="Number of steps, instead of --minutes.")
    ] = None,
    from_step: Annotated[int, typer.Option(help="The first step, to run a failed step again.")] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of everything random; by default a new one.")
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Timeout in seconds of an operation, and of a step.")
    ] = 60.0,
    most_bytes: Annotated[
        str, typer.Option("--bytes", help="The largest tensor: 64K, 32M.")
    ] = "32M",
    hint: Annotated[
        list[str] | None, typer.Option(help="Hint NAME=VALUE of all communicators; repeatable.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write a report here; -: stdout, no table.")
    ] = None,
) -> None:
    """Run random operations on processes of this machine, and check every value.

    The operations are all collectives and messages, with random sizes, dtypes, addresses and
    orders. Several are in flight at a time, on several communicators that are created and closed,
    with ranks that are late; on cuda also on several streams and in graphs. Everything follows from
    the seed, which is printed. Every rank computes its expected result by itself. Stops at the
    first wrong value, error or hang, names it, and prints how to run that step again. Exit status
    0: everything was right; 1: something was not; 2: the request is not possible here.
    """
    from torchcomms import CommError, _output
    from torchcomms.bench import BenchError, parse_sizes
    from torchcomms.soak import Request, SoakError, as_object, default_ranks, parse_hints

    try:
        _output.prepare(json_path)
        sizes = parse_sizes(most_bytes)
        request = Request(
            backend=backend,
            device=device,
            ranks=default_ranks(device) if ranks is None else ranks,
            seed=secrets.randbelow(1 << 32) if seed is None else seed,
            minutes=minutes,
            steps=steps,
            from_step=from_step,
            limit_s=limit,
            most_bytes=max(sizes),
            hints=parse_hints(list(hint or [])),
        )
        outcome = _run(request)
        # Printed first, because writing a file may still fail.
        _print(outcome, json_path == Path("-"))
        if json_path is not None and json_path != Path("-"):
            _output.write(json_path, json.dumps(as_object(outcome), indent=1) + "\n")
    except (BenchError, SoakError, CommError) as error:
        print(f"torchcomms soak: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if outcome.failure is not None:
        raise typer.Exit(1)


def _run(request: Request) -> Outcome:
    from torchcomms.soak import soak

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    request.check()
    print(f"seed {request.seed}", file=sys.stderr)
    with status_line("importing torch") as progress:
        return soak(request, progress)


def _print(outcome: Outcome, as_json: bool) -> None:
    from torchcomms.soak import as_object, failure_text, summary

    if as_json:
        print(json.dumps(as_object(outcome)))
    elif outcome.failure is None:
        print(summary(outcome))
    if outcome.failure is not None:
        print(failure_text(outcome.request, outcome.failure), file=sys.stderr)
