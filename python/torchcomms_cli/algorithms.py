"""`torchcomms algorithms`: prints the table of algorithms, or their costs for one operation."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

Row = dict[str, Any]
_MOST = 1_000_000  # ranks, the same bound as in `torchcomms sim`


def algorithms(
    context: typer.Context,
    *,
    operation: Annotated[
        str | None, typer.Option(help="One operation, with costs: all_reduce, ...")
    ] = None,
    ranks: Annotated[
        int, typer.Option(min=1, max=_MOST, help="Number of ranks, for the costs.")
    ] = 4,
    sizes: Annotated[
        str, typer.Option("--bytes", help="Sizes, for the costs: 8 | 1K | 1K:64M | comma list.")
    ] = "8,64K,16M",
    wire: Annotated[str, typer.Option(help="What connects the ranks: self, shm or tcp.")] = "shm",
    local_size: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST, help="Ranks per host (shm: all of them; tcp: 1)."),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, max=_MOST, help="Cores per host (this machine's).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
) -> None:
    """List the algorithms of collective operations, or what each costs for one operation.

    Costs are the values of the formulas for the rank with the highest cost. The time is estimated
    with this machine's tuning file, if `torchcomms tune` has written one. A star marks what backend
    `ctran` takes. For example:

    torchcomms algorithms --operation all_reduce --ranks 4 --bytes 1K:16M:16
    """
    from torchcomms import CommError
    from torchcomms import algorithms as table_of
    from torchcomms.bench import BenchError, parse_sizes

    try:
        if operation is None and (given := _of_costs(context)):
            raise BenchError(
                f"{', '.join(given)}: only for the costs of one operation; add --operation"
            )
        rows = table_of.catalogue(operation)
        kernels = table_of.kernels() if as_json or operation is None else []
        measured = table_of.measured_kernels()
        points = []
        if operation is not None:
            where: Row = {"wire": wire, "local_size": local_size, "cores": cores}
            for size in parse_sizes(sizes):
                costs = table_of.costs(operation, ranks, size, **where)
                chosen = table_of.chosen(operation, ranks, size, **where)
                points.append({"bytes": size, "chosen": chosen, "costs": costs})
    except (BenchError, CommError) as error:
        print(f"torchcomms algorithms: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    if as_json:
        report = {"algorithms": rows, "ranks": ranks, "wire": wire, "costs": points}
        report["kernels"] = kernels
        report["measured_kernels"] = measured
        print(json.dumps(report, indent=2))
    elif operation is None:
        _print_catalogue(rows)
        _print_kernels(kernels)
        _print_measured(measured)
    else:
        _print_costs(operation, ranks, wire, rows, points)


def _of_costs(context: typer.Context) -> list[str]:
    """The given options that have no meaning without --operation."""
    options = {
        "ranks": "--ranks", "sizes": "--bytes", "wire": "--wire", "local_size": "--local-size",
        "cores": "--cores",
    }  # fmt: skip
    sources = {name: context.get_parameter_source(name) for name in options}
    return [
        options[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"
    ]


def _print_catalogue(rows: list[Row]) -> None:
    from torchcomms._table import table

    print(
        table(
            ("operation", "algorithm", "addition", "what it does"),
            [(row["operation"], row["name"], row["addition"], row["summary"]) for row in rows],
        )
    )


def _print_kernels(rows: list[Row]) -> None:
    from torchcomms._table import human_bytes, table

    if not rows:
        return
    print("\nBackend `ncclx` runs these by kernels over NVLink; NCCL runs the rest:\n")
    lines = []
    for row in rows:
        most = row["bytes_most"]
        size = "any" if most is None else human_bytes(most)
        lines.append((row["operation"], row["ranks_most"], size))
    print(table(("operation", "ranks up to", "bytes up to"), lines, right=range(1, 3)))


def _print_measured(rows: list[Row]) -> None:
    from torchcomms._table import human_bytes, table

    if not rows:
        return
    print("\nMeasured here, and preferred on these GPUs (`torchcomms tune --device cuda`):\n")
    lines = []
    for row in rows:
        first, last = row["bytes"]
        most = "on" if last >= 1 << 60 else f"to {human_bytes(last)}"
        ranks = "..".join(map(str, dict.fromkeys(row["ranks"])))
        blocks = row["blocks"] or ""
        lines.append(
            (row["operation"], row["gpu"], ranks, f"{human_bytes(first)} {most}", row["kind"],
             row["mode"], row["tensors"], row["within"] or "any", row["algorithm"], blocks)
        )  # fmt: skip
    headers = ("operation", "gpu", "ranks", "bytes", "kind", "mode", "tensors", "within blocks",
               "algorithm", "blocks")  # fmt: skip
    print(table(headers, lines))


def _print_costs(operation: str, ranks: int, wire: str, rows: list[Row], points: list[Row]) -> None:
    from torchcomms._table import human_bytes, table

    print(f"{operation}, {ranks} ranks over {wire}\n")
    for row in rows:
        print(f"{row['name']}: {row['summary']}")
        if row["order"]:
            print(f"  adds: {row['order']}")
        print(f"  from: {row['source']}")
    headers = ("", "algorithm", "chunk", "steps", "messages", "sent", "reduced", "scratch", "us")
    for point in points:
        lines = [_cost_line(cost, point["chosen"]["algorithm"]) for cost in point["costs"]]
        why = point["chosen"]["why"]
        taken = why if why == "the only one" else f"chosen by the {why}"
        print(f"\n{human_bytes(point['bytes'])} bytes ({taken})")
        print(table(headers, lines, right=range(2, len(headers))))


def _cost_line(cost: Row, chosen: str) -> tuple[object, ...]:
    from torchcomms._table import human_bytes

    if cost["why_not"]:
        return ("", f"{cost['name']}: {cost['why_not']}", *[None] * 7)
    return (
        "*" if cost["name"] == chosen else "",
        cost["name"],
        human_bytes(cost["chunk_bytes"]) if cost["chunk_bytes"] else "all",
        cost["steps"],
        cost["messages"],
        human_bytes(cost["sent_bytes"]),
        human_bytes(cost["reduced_bytes"]),
        human_bytes(cost["scratch_bytes"]),
        f"{cost['estimate_us']:.1f}",
    )
