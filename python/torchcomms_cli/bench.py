"""`torchcomms bench`: parses arguments, runs the benchmark, writes the points."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcomms_cli.progress import progress_bar

if TYPE_CHECKING:
    from torchcomms.bench import Plan, Point


def bench(
    ops: Annotated[
        list[str] | None,
        typer.Argument(help="Operations (all_reduce, send_recv, ...), `all`, or `overhead`."),
    ] = None,
    *,
    backend: Annotated[
        str,
        typer.Option(
            help="Comma list; c10d:<name>: torch.distributed; raw:nccl: a vendor library "
            "alone; symm_mem:one_shot, symm_mem:two_shot: torch's symmetric memory; "
            "@knob=value: a hint."
        ),
    ] = "gloo,c10d:gloo",
    ranks: Annotated[
        int | None, typer.Option(help="Processes to start (2); under torchrun: its ranks.")
    ] = None,
    sizes: Annotated[
        str, typer.Option("--bytes", help="8 | 1K | 1K:64M (doubling) | 1K:64M:4 | comma list.")
    ] = "8,1K:1M:4",
    dtype: Annotated[str, typer.Option(help="Element type, for example bfloat16.")] = "float32",
    mode: Annotated[
        str, typer.Option(help="Comma list of sync (or eager), async, graph (on cuda).")
    ] = "sync",
    device: Annotated[str, typer.Option(help="Where the tensors are: cpu, cuda.")] = "cpu",
    seconds: Annotated[float, typer.Option(help="Time for each point of each backend.")] = 0.3,
    iterations: Annotated[
        int | None, typer.Option(help="Timed calls per point, instead of --seconds.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each backend at a point.")] = 10,
    graph_operations: Annotated[
        int, typer.Option(help="Calls in a row in a graph, in mode graph.")
    ] = 50,
    beside: Annotated[
        str | None,
        typer.Option(help="matmul: how operation and matrix product slow down each other."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order in which backends take turns.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw to this .png, .svg or .pdf.")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write JSON lines here; -: stdout, no table.")
    ] = None,
    show_table: Annotated[bool, typer.Option("--table/--no-table", help="Print the table.")] = True,
    compare: Annotated[
        bool, typer.Option("--compare", help="Print medians side by side, and their ratios.")
    ] = False,
) -> None:
    """Measure operations on one or several backends in the same run.

    The backends take turns at every point, so that drift of the machine affects all of them
    equally. Times are those of the slowest rank in each iteration; busbw uses the factors of
    nccl-tests. Values are checked before and after the timed loop; a wrong value makes the exit
    status 1. On cuda an iteration is a batch of calls, timed by the device's clock; the host's time
    is listed too. With --beside matmul a second table shows how much each operation slows down a
    concurrent matrix product. `overhead` measures what a call and the import of this package cost a
    Python program.
    """
    from torchcomms import CommError
    from torchcomms.bench import OPERATIONS, BenchError, Plan, parse_sizes

    names = list(ops or ["all_reduce"])
    outputs = Outputs(plot, json_path, show_table, compare)
    try:
        outputs.check()
        if "overhead" in names:
            if len(names) > 1:
                raise BenchError("overhead is measured alone, not together with operations")
            _overhead(json_path)
            return
        plan = Plan(
            ops=list(OPERATIONS) if names == ["all"] else names,
            backends=_split(backend),
            sizes=parse_sizes(sizes),
            dtype=dtype,
            modes=["sync" if each == "eager" else each for each in _split(mode)],
            device=device,
            seconds=seconds,
            iterations=iterations,
            rounds=rounds,
            seed=seed,
            graph_operations=graph_operations,
            beside=beside,
        )
        if not plan.backends:
            raise BenchError("no backend was given")
        if compare and len(plan.backends) < 2:
            raise BenchError("--compare needs at least two backends")
        points = _measure(plan, ranks, outputs)
        outputs.write(points)
        if any(point.correct is False for point in points):
            raise typer.Exit(1)
    except (BenchError, CommError) as error:
        print(f"torchcomms bench: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@dataclass(frozen=True)
class Outputs:
    """The destinations of the points: a table, a JSON file, a picture."""

    picture: Path | None
    json_path: Path | None
    table: bool
    compare: bool

    @property
    def lines_to_stdout(self) -> bool:
        return self.json_path == Path("-")

    def check(self) -> None:
        """Raises BenchError or CommError now for an output that could not be written later."""
        from torchcomms import _output
        from torchcomms.bench import require_matplotlib

        if self.picture is not None:
            require_matplotlib(self.picture)
        _output.prepare(self.json_path)

    def write(self, points: list[Point]) -> None:
        from torchcomms.bench import (
            beside_table,
            compare_table,
            plot,
            points_table,
            write_lines,
        )

        if not points:
            return  # not rank 0, or nothing could be measured, which a note has said
        # The tables are printed first, because writing a file may still fail.
        if self.table and not self.lines_to_stdout:
            print(points_table(points))
            if any(point.beside is not None for point in points):
                print("\n" + beside_table(points))
        if self.compare and not self.lines_to_stdout:
            print("\n" + compare_table(points))
        if self.json_path is not None and not self.lines_to_stdout:
            write_lines(points, self.json_path)
        if self.picture is not None:
            plot(points, self.picture)


def _measure(plan: Plan, ranks: int | None, outputs: Outputs) -> list[Point]:
    from torchcomms.bench import BenchError, World, launch, run_here

    points = []
    groups = plan.points() // len(plan.backends)
    with contextlib.ExitStack() as stack:
        world = None
        if all(os.environ.get(name, "").strip() for name in ("RANK", "WORLD_SIZE")):
            world = stack.enter_context(World.of_launcher("torchcomms_bench"))
            if ranks not in (None, world.size):
                raise BenchError(
                    f"--ranks: {ranks}, but the launcher has started {world.size} ranks"
                )
        bar = progress_bar(groups, rank=world.rank if world else 0)
        progress, note = stack.enter_context(bar)
        if world is not None:
            source: Iterator[Point] = run_here(plan, world, progress, note)
        else:
            source = launch(plan, 2 if ranks is None else ranks, progress, note)
        for point in source:
            points.append(point)
            if outputs.lines_to_stdout:
                print(point.to_json(), flush=True)
    return points


def _overhead(json_path: Path | None) -> None:
    from torchcomms import _output
    from torchcomms._table import table
    from torchcomms.bench import call_cost, import_cost
    from torchcomms.bench.result import machine

    calls, imports = call_cost(), import_cost()
    rows = [(c.call, f"{c.p50_us:.3f}", f"{c.p99_us:.3f}") for c in calls]
    facts = machine("cpu")
    lines = [{"measure": "call", **c.as_dict(), **facts} for c in calls]
    lines.append({"measure": "import", **imports.as_dict(), **facts})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if json_path == Path("-"):
        print(text, end="")
        return
    print("8-byte all_reduce of one rank on fake, async_op=False")
    print(table(("call", "p50 us", "p99 us"), rows, right=(1, 2)))
    print(f"(each sample is the mean over a block of {calls[0].calls_per_block} calls)\n")
    print(f"import torch                     {imports.torch_s:.3f} s")
    print(f"import torch; import torchcomms  {imports.torch_and_torchcomms_s:.3f} s")
    print(f"added                            {imports.added_s:+.3f} s")
    print(f"(medians of {imports.pairs} pairs of processes, interleaved)")
    if json_path is not None:
        _output.write(json_path, text)
