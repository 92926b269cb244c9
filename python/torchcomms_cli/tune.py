"""`torchcomms tune`: measures this machine and writes its tuning file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from torchcomms_cli.progress import progress_bar

if TYPE_CHECKING:
    from torchcomms.bench import tune as cpu
    from torchcomms.bench import tune_kernels as gpu

Tuned = tuple[str, list[str]]  # the whole text of the file, and its new lines
Report = Callable[[str], None]
T = TypeVar("T")


def tune(
    operations: Annotated[
        list[str] | None, typer.Argument(help="all_reduce, all_gather, ... Default: all_reduce.")
    ] = None,
    *,
    device: Annotated[
        str,
        typer.Option(help="cpu: algorithms of ctran; cuda: algorithms of kernels on these GPUs."),
    ] = "cpu",
    ranks: Annotated[
        int | None, typer.Option(min=2, help="Processes to start: 2; on cuda one per GPU.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--bytes", help="8 | 1K | 1K:64M:4 | comma list.")
    ] = None,
    wire: Annotated[str, typer.Option(help="What connects the ranks: shm or tcp.")] = "shm",
    backend: Annotated[
        str, typer.Option(help="On cuda: ncclx (kernels or NCCL), or ctran (kernels).")
    ] = "ncclx",
    dtype: Annotated[
        str, typer.Option(help="On cuda: one float type, one integer type, or both.")
    ] = "bfloat16",
    mode: Annotated[str, typer.Option(help="On cuda: eager, graph or both.")] = "eager,graph",
    blocks: Annotated[
        str, typer.Option(help="On cuda: maximum thread blocks, a comma list.")
    ] = "64,128",
    tensors: Annotated[
        str, typer.Option(help="On cuda: plain, registered (in windows) or both.")
    ] = "plain",
    within: Annotated[
        str,
        typer.Option(help="On cuda: also for operations limited to so many blocks, a comma list."),
    ] = "",
    seconds: Annotated[
        float | None, typer.Option(help="Time for each algorithm at each size: 0.1; on cuda 0.05.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--output", help="The file; default: the one that ctran reads.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the file instead of writing it.")
    ] = False,
) -> None:
    """Measure algorithms on this machine, and write the fastest ones to the tuning file.

    By default these are the algorithms of backend `ctran` on the CPU; with `--device cuda` those of
    the kernels of `ctran` and `ncclx`. The file is TORCHCOMM_CTRAN_TUNING_FILE, or one in
    ~/.cache/torchcomms. Lines about other operations, ranks, wires and GPUs stay in it. Rank 0's
    file is used by a whole job. For example:

    torchcomms tune all_reduce all_gather --ranks 4

    torchcomms tune all_reduce reduce_scatter_single --device cuda --bytes 1K:256M:4
    """
    from torchcomms import CommError, _output
    from torchcomms.algorithms import tuning_path
    from torchcomms.bench import BenchError, parse_sizes
    from torchcomms.bench import tune as cpu
    from torchcomms.bench import tune_kernels as gpu

    names = list(operations or ["all_reduce"])
    try:
        target = path or Path(tuning_path())
        _output.prepare(None if dry_run else target)
        # Comments in the file may contain bytes that are not UTF-8.
        old = target.read_text(errors="replace") if target.is_file() else ""
        if old:
            cpu.check(old, target)  # fails before the measurement
        if device == "cpu":
            measured = parse_sizes(sizes or "8,1K:16M:4")
            on_cpu = cpu.Effort(names, ranks or 2, measured, wire, _or(seconds, 0.1))
            text, new = _of_cpu(on_cpu, old)
        else:
            effort = gpu.Effort(
                names,
                ranks or _gpus(device),
                parse_sizes(sizes or "1K:256M:4"),
                device,
                backend,
                _split(dtype),
                _split(mode),
                _numbers(blocks),
                _or(seconds, 0.05),
                _split(tensors),
                _numbers(within),
            )
            text, new = _of_kernels(effort, old)
        if dry_run:
            print(text, end="")
            return
        cpu.write(text, target)
    except (BenchError, CommError, OSError) as error:
        print(f"torchcomms tune: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    print(f"wrote {target}")
    for line in new:
        print(f"  {line}")


def _of_cpu(effort: cpu.Effort, old: str) -> Tuned:
    from torchcomms.bench import tune as tuning

    effort.check()
    timings = _with_progress(
        len(effort.operations) * len(effort.sizes),
        lambda progress, note: tuning.measure(effort, progress, note),
    )
    line = tuning.constants(effort, timings, len(os.sched_getaffinity(0)))
    uses = tuning.overrides(effort, timings)
    return tuning.merged(old, effort, line, uses), uses


def _of_kernels(effort: gpu.Effort, old: str) -> Tuned:
    from torchcomms.bench import tune_kernels as tuning

    effort.check()
    winners = _with_progress(
        len(list(effort.runs())) * len(effort.sizes),
        lambda progress, note: tuning.measure(effort, progress, note),
    )
    new = tuning.lines(effort, winners)
    return tuning.merged(old, effort, new), new


def _with_progress(steps: int, measure: Callable[[Report, Report], T]) -> T:
    with progress_bar(steps) as (progress, note):
        return measure(progress, note)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> list[int]:
    """Parses a comma list of numbers; 0 for an element that is not a number."""
    return [int(each) if each.isdecimal() else 0 for each in _split(text)]


def _or(seconds: float | None, default: float) -> float:
    return default if seconds is None else seconds


def _gpus(device: str) -> int:
    import torch

    return min(torch.cuda.device_count(), 8) if device == "cuda" else 2
