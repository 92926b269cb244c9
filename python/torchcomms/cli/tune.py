"""`torchcomms tune`: measure this machine, write its tuning file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from torchcomms.cli.progress import progress_bar


def tune(
    operations: Annotated[
        list[str] | None, typer.Argument(help="all_reduce, all_gather, ... Default: all_reduce.")
    ] = None,
    *,
    ranks: Annotated[int, typer.Option(min=2, help="Processes to start.")] = 2,
    sizes: Annotated[
        str, typer.Option("--bytes", help="8 | 1K | 1K:64M:4 | comma list.")
    ] = "8,1K:16M:4",
    wire: Annotated[str, typer.Option(help="What connects the ranks: shm or tcp.")] = "shm",
    seconds: Annotated[float, typer.Option(help="For each algorithm at each size.")] = 0.1,
    path: Annotated[
        Path | None, typer.Option("--output", help="The file; default: where ctran looks for it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the file instead of writing it.")
    ] = False,
) -> None:
    """Measure the algorithms of backend `ctran` on this machine, and write what won.

    The file is TORCHCOMM_CTRAN_TUNING_FILE, or one in ~/.cache/torchcomms. Lines about other
    operations, ranks and wires stay in it. Rank 0's file counts for a whole job. For example:

    torchcomms tune all_reduce all_gather --ranks 4
    """
    from torchcomms import CommError
    from torchcomms.algorithms import tuning_path
    from torchcomms.bench import BenchError, parse_sizes
    from torchcomms.bench import tune as tuning

    try:
        target = path or Path(tuning_path())
        effort = tuning.Effort(
            list(operations or ["all_reduce"]), ranks, parse_sizes(sizes), wire, seconds
        )
        effort.check()
        old = target.read_text() if target.is_file() else ""
        tuning.merged(old, effort, None, [])  # an unreadable file is found before measuring
        with progress_bar(len(effort.operations) * len(effort.sizes)) as (progress, note):
            timings = tuning.measure(effort, progress, note)
        line = tuning.constants(effort, timings, len(os.sched_getaffinity(0)))
        uses = tuning.overrides(effort, timings)
        text = tuning.merged(old, effort, line, uses)
        if dry_run:
            print(text, end="")
            return
        tuning.write(text, target)
    except (BenchError, CommError, OSError) as error:
        print(f"torchcomms tune: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    print(f"wrote {target}")
    for use in uses:
        print(f"  {use}")
