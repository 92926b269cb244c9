"""Draws the picture of docs/reports/kernels.md from its lines: our kernels beside NCCL.

    python -m benchmarks.gpu.pictures [--reports docs/reports]

Needs matplotlib. The same lines give the same file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcomms.bench.plot import COLOURS, MARKERS, format_axes, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
LINES, PICTURE = "kernels.jsonl", "kernels.svg"
TITLE = "a launch in a graph, without Python; 4x H200, NVLink, multicast off"
SIDES = {
    "ours": "our kernels, plain buffers",
    "nccl_plain": "NCCL, plain buffers",
    "nccl_window": "NCCL, buffers registered as windows",
}
PANELS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
COLUMNS = 3
DECIMALS = re.compile(r"(?<=\d\.\d)\d{2,}")  # of coordinates, behind the first


def read(reports: Path) -> list[dict[str, Any]]:
    """The lines that are in the picture: those of the kernels' own program, but for messages."""
    rows = [json.loads(line) for line in (reports / LINES).read_text().splitlines()]
    return [row for row in rows if row.get("variant") in SIDES and row["op"] in PANELS]


def draw_panel(axes: Axes, op: str, rows: Sequence[dict[str, Any]]) -> None:
    from matplotlib.ticker import LogLocator

    for (variant, label), colour, marker in zip(SIDES.items(), COLOURS, MARKERS, strict=False):
        line = sorted(
            (row["bytes"], row["p50_us"], row["p99_us"])
            for row in rows
            if row["variant"] == variant
        )
        if not line:
            continue
        sizes, p50, p99 = zip(*line, strict=True)
        axes.plot(sizes, p50, color=colour, label=label, marker=marker, markersize=3.5)
        axes.fill_between(sizes, p50, p99, color=colour, alpha=0.13, linewidth=0)
    format_axes(axes, {row["bytes"] for row in rows}, op, "bytes", "µs, median to p99")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,)))
    axes.get_legend().remove()  # the picture has one for all


def draw(reports: Path) -> Path:
    """Writes the picture beside the lines; returns its file."""
    path = reports / PICTURE
    pyplot = require_matplotlib(path)
    # Text stays text, and nothing depends on when and where this runs.
    pyplot.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": PICTURE, "font.sans-serif": ["DejaVu Sans"],
        "lines.linewidth": 1.4,
    })  # fmt: skip
    rows = read(reports)
    height = -(-len(PANELS) // COLUMNS)
    figure, grid = pyplot.subplots(
        height, COLUMNS, figsize=(4.6 * COLUMNS + 1, 3.4 * height), layout="constrained"
    )
    for axes, op in zip(grid.flat, PANELS, strict=True):
        draw_panel(axes, op, [row for row in rows if row["op"] == op])
    figure.suptitle(TITLE, fontsize=10)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    # matplotlib leaves white space at the ends of lines, and writes six decimals of a point.
    lines = (DECIMALS.sub("", line).strip() for line in path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.pictures", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--reports", type=Path, default=ROOT / "docs/reports", help="folder of the lines"
    )
    print(draw(parser.parse_args(argv).reports))


if __name__ == "__main__":
    main()
