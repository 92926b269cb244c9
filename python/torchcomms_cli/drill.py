"""`torchcomms drill`: parses arguments, runs the fault cases, prints verdicts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcomms_cli.progress import progress_bar

if TYPE_CHECKING:
    from torchcomms.drill import Plan, Result


def drill(
    faults: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CELLS]", help="Cells, as for --cells.", show_default=False),
    ] = None,
    *,
    backend: Annotated[
        str,
        typer.Option(
            help="Comma list of ctran, gloo, and c10d:gloo as the baseline; nccl and ncclx with "
            "a library for host memory."
        ),
    ] = "ctran,gloo",
    cells: Annotated[
        str, typer.Option(help="Comma list: F01 is all cells of a fault, F01/idle one; empty: all.")
    ] = "",
    slow: Annotated[bool, typer.Option("--slow", help="Include slow cells.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the cells, run none.")] = False,
    limit: Annotated[
        float, typer.Option(help="Timeout in seconds of operations that must time out.")
    ] = 2.0,
    slack: Annotated[
        float, typer.Option(help="Factor on all bounds, for a machine with other work.")
    ] = 1.0,
    rounds: Annotated[int, typer.Option(help="Rounds of cells that repeat.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of random choices in cells.")] = 1,
    jobs: Annotated[int, typer.Option(help="Cells that run at a time.")] = 1,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write results here; -: stdout, no table.")
    ] = None,
    markdown_path: Annotated[
        Path | None, typer.Option("--markdown", help="Write a Markdown table here.")
    ] = None,
) -> None:
    """Inject faults into small jobs on this machine, and judge what their survivors see.

    Each cell is a fault at a named point: a rank is killed inside an operation, a rank is stopped,
    ranks disagree, a store fails, ... A cell runs in processes of its own, which always end. Exit
    status 0: nothing of torchcomms failed, except documented cases; 1: something failed; 2: the
    request is not valid.
    """
    from torchcomms import CommError, _output
    from torchcomms.drill import CELLS, DrillError, Plan, cells_table, chosen

    try:
        wanted = chosen(CELLS, ",".join([cells, *(faults or [])]), slow or show_list)
        if show_list:
            print(cells_table(wanted))
            return
        _output.prepare(json_path, markdown_path)
        names = [name.strip() for name in backend.split(",") if name.strip()]
        plan = Plan(
            wanted, names, seed=seed, jobs=jobs, limit_s=limit, slack=slack, rounds=rounds
        )  # fmt: skip
        results = _run(plan)
        # Printed first, because writing a file may still fail.
        _print(results, json_path == Path("-"), seed)
        _write(results, json_path, markdown_path)
    except (DrillError, CommError) as error:
        print(f"torchcomms drill: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if any(result.bad for result in results):
        raise typer.Exit(1)


def _run(plan: Plan) -> list[Result]:
    from torchcomms.drill import drill

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    plan.check()
    results = []
    with progress_bar(sum(1 for _ in plan.cases()), begin="importing torch") as (progress, note):
        for result in drill(plan, progress):
            results.append(result)
            if result.bad:
                note(f"{result.cell} {result.backend}: {result.verdict}: {result.why}")
    return results


def _write(results: list[Result], json_path: Path | None, markdown_path: Path | None) -> None:
    from torchcomms import _output
    from torchcomms.drill import markdown, write_json

    if json_path is not None and json_path != Path("-"):
        write_json(results, json_path)
    if markdown_path is not None:
        _output.write(markdown_path, markdown(results))


def _print(results: list[Result], as_json: bool, seed: int) -> None:
    from torchcomms.drill import results_table, summary
    from torchcomms.drill.show import as_object

    if as_json:
        print(json.dumps(as_object(results)))
    else:
        print(results_table(results))
        print(f"\nseed {seed}; {summary(results)}")
