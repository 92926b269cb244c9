"""`torchcomms sim`: parses arguments, runs the simulator, writes the points."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcomms_cli.progress import progress_bar

if TYPE_CHECKING:
    from torchcomms.sim import Plan, Point

# Options whose field in the model has another name and unit: GB/s become ns per byte.
_PER_BYTE = {"bandwidth": "byte_ns", "local_bandwidth": "local_byte_ns"}

EXAMPLES = """\b
Examples:
  torchcomms sim all_reduce --algorithm ring,two_level --ranks 1K:128K --bytes 1M --local-size 8
  torchcomms sim barrier --ranks 1K:128K --latency-us 5
  torchcomms sim bootstrap --ranks 1K:128K --plot bootstrap.png
  torchcomms sim bootstrap --ranks 16K --drop 0.01 --seed 2
  torchcomms sim bootstrap --ranks 4K --kill 1234:161"""


def sim(
    operation: Annotated[
        str, typer.Argument(help="all_reduce, all_gather, barrier, ..., or bootstrap.")
    ] = "all_reduce",
    *,
    algorithm: Annotated[str, typer.Option(help="Comma list; empty: all of the operation.")] = "",
    ranks: Annotated[
        str, typer.Option(help="4096 | 1K:128K (doubling) | 1K:64K:4 | comma list.")
    ] = "1K:16K:4",
    sizes: Annotated[
        str,
        typer.Option("--bytes", help="Size of the vector, or of each rank's block; as --ranks."),
    ] = "1M",
    local_size: Annotated[int, typer.Option(help="Ranks per host.")] = 1,
    rails: Annotated[int | None, typer.Option(help="NICs per host (one per rank).")] = None,
    hosts_per_leaf: Annotated[int | None, typer.Option(help="Hosts per leaf switch (all).")] = None,
    oversubscription: Annotated[
        float | None, typer.Option(help="Oversubscription of uplinks: 2 is half the bandwidth.")
    ] = None,
    latency_us: Annotated[
        float | None, typer.Option(help="Latency between hosts (2; TCP 25).")
    ] = None,
    overhead_us: Annotated[
        float | None, typer.Option(help="Processor time at either end (0.3; 5).")
    ] = None,
    gap_us: Annotated[float | None, typer.Option(help="Time between messages (0.1; 1).")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="GB/s of a NIC (50; 1).")] = None,
    local_latency_us: Annotated[
        float | None, typer.Option(help="Latency inside a host (0.4; 10).")
    ] = None,
    local_bandwidth: Annotated[
        float | None, typer.Option(help="GB/s of a rank inside a host (100; 5).")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Elements per chunk of pipelined algorithms.")
    ] = None,
    blob_bytes: Annotated[
        int | None, typer.Option(help="bootstrap: bytes of a rank's blob (128).")
    ] = None,
    stagger_us: Annotated[
        float | None, typer.Option(help="bootstrap: ranks start at random within this time.")
    ] = None,
    kill: Annotated[
        str | None, typer.Option(metavar="RANK:MS", help="bootstrap: end this rank's process.")
    ] = None,
    drop: Annotated[
        float | None, typer.Option(help="Fraction of messages that are lost and sent again.")
    ] = None,
    delay: Annotated[
        float | None, typer.Option(help="Fraction of messages that arrive --delay-us later.")
    ] = None,
    delay_us: Annotated[float | None, typer.Option(help="Delay of these messages (10000).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the faults.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw to this .png, .svg or .pdf.")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write JSON lines here; -: stdout, no table.")
    ] = None,
) -> None:
    """Simulate a collective algorithm, or the start of a job, on up to a million ranks.

    Runs the schedules and the state machine of the library itself under a virtual clock, with a
    LogGP model of the network: NICs, hosts, a fat tree. Counts are exact; times are the model's.
    The same command gives the same figures.
    """
    from torchcomms import CommError, _output
    from torchcomms.bench import BenchError, require_matplotlib
    from torchcomms.sim import BOOTSTRAP, Plan, SimError, parse_counts

    given = {
        name: value
        for name, value in {
            "local_size": local_size, "rails": rails, "hosts_per_leaf": hosts_per_leaf,
            "oversubscription": oversubscription, "latency_us": latency_us,
            "overhead_us": overhead_us, "gap_us": gap_us, "bandwidth": bandwidth,
            "local_latency_us": local_latency_us, "local_bandwidth": local_bandwidth,
            "chunk": chunk, "blob_bytes": blob_bytes, "stagger_us": stagger_us, "drop": drop,
            "delay": delay, "delay_us": delay_us, "seed": seed,
        }.items()
        if value is not None
    }  # fmt: skip
    try:
        if plot is not None:
            require_matplotlib(plot)
        _output.prepare(json_path)
        settings = _settings(given)
        _check_options(operation == BOOTSTRAP, settings, kill)
        if kill is not None:
            settings.update(_parse_kill(kill))
        plan = Plan(
            operation=operation,
            algorithms=[part.strip() for part in algorithm.split(",") if part.strip()],
            ranks=parse_counts(ranks, "ranks"),
            bytes=parse_counts(sizes, "bytes"),
            settings=settings,
        )
        points = _simulate(plan, json_path == Path("-"))
        if not points:
            raise SimError("none of the points can be simulated; the lines above say why")
        _write(points, plot, json_path)
        if json_path != Path("-"):
            _print(points)
    except (SimError, BenchError, CommError) as error:
        print(f"torchcomms sim: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _settings(given: dict[str, float]) -> dict[str, float]:
    from torchcomms.sim import SimError

    settings = {}
    for name, value in given.items():
        if name in _PER_BYTE:
            if value <= 0:
                raise SimError(f"{name}: {value} GB/s is not above 0")
            settings[_PER_BYTE[name]] = 1 / value
        else:
            settings[name] = value
    for name in ("drop", "delay"):
        if not 0 <= settings.get(name, 0) < 1:
            raise SimError(f"{name}: {settings[name]} is not in [0, 1)")
    return settings


def _check_options(bootstrap: bool, settings: dict[str, float], kill: str | None) -> None:
    from torchcomms.sim import SimError

    only_bootstrap = {"blob_bytes", "stagger_us"} & settings.keys()
    if not bootstrap and (only_bootstrap or kill is not None):
        word = next(iter(only_bootstrap), "kill").replace("_", "-")
        raise SimError(f"--{word} is only for bootstrap")
    if bootstrap and "chunk" in settings:
        raise SimError("--chunk is only for collective operations")


def _parse_kill(text: str) -> dict[str, float]:
    from torchcomms.sim import SimError

    rank, _, at_ms = text.partition(":")
    try:
        at_us = float(at_ms) * 1e3
        if not math.isfinite(at_us):
            raise ValueError
        return {"kill": int(rank), "kill_at_us": at_us}
    except ValueError:
        raise SimError(f"kill: {text!r} is not RANK:MS, for example 1234:161") from None


def _simulate(plan: Plan, lines_to_stdout: bool) -> list[Point]:
    from torchcomms.sim import simulate

    points = []
    plan.check()
    with progress_bar(sum(1 for _ in plan.cases()), begin="simulating") as (progress, note):
        for point in simulate(plan, progress, note):
            points.append(point)
            if lines_to_stdout:
                print(point.to_json(), flush=True)
    return points


def _write(points: list[Point], picture: Path | None, json_path: Path | None) -> None:
    from torchcomms.sim import plot, write_lines

    if json_path is not None and json_path != Path("-"):
        write_lines(points, json_path)
    if picture is not None:
        plot(points, picture)


def _print(points: list[Point]) -> None:
    from torchcomms.sim import points_table
    from torchcomms.sim.result import notes

    print(points_table(points))
    if notes(points):
        print(f"({notes(points)})")
