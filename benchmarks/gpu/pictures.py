"""The pictures of the GPU reports, of the lines beside them: ours against NCCL and torch.

    python -m benchmarks.gpu.pictures [--reports docs/reports]

Needs matplotlib. The same lines give the same files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcomms._table import human_bytes
from torchcomms.bench.plot import COLOURS, MARKERS, format_axes, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One side at one size, medians and 99th percentiles in us."""

    panel: str
    side: str
    size: int
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Picture:
    """`read` makes samples of a row of `source`, none of what is not in the picture."""

    name: str
    source: str
    title: str
    read: Callable[[Row], Iterator[Sample]]
    sides: Sequence[str]  # as samples call them, ours first
    columns: int = 3
    as_bars: bool = False  # a panel has few sizes: its operations stand beside each other


def of_harness(row: Row, sides: dict[str, str], panel: str, **wanted: str) -> Iterator[Sample]:
    """Of a line of the harness, or of the kernels' own program; `panel` is a format over it."""
    side = row.get("variant") or row.get("backend")
    if "op" not in row or side not in sides:
        return
    if all(row.get(key) == value for key, value in wanted.items()):
        yield Sample(panel.format(**row), sides[side], row["bytes"], row["p50_us"], row["p99_us"])


def of_windows(row: Row, sides: dict[str, str]) -> Iterator[Sample]:
    for name, (p50, p99) in row["us of p50 and p99"].items():
        yield Sample("both ways at once", sides[name], row["bytes"], p50, p99)


BUFFERS = {
    "ours": "our kernels, plain buffers",
    "nccl_plain": "NCCL, plain buffers",
    "nccl_window": "NCCL, buffers registered as windows",
}
BACKENDS = {"ncclx": "ncclx", "nccl": "nccl", "c10d:nccl": "torch.distributed with nccl"}
LIBRARY = {"nccl": "nccl", "raw:nccl": "NCCL alone", "c10d:nccl": "torch.distributed with nccl"}
TURNS = {"put": "ctran: put, signal, wait", "nccl": "NCCL: send and receive in a group"}
JOINED = "NVLink, multicast off"
MACHINE, FOUR = f"2x H200, {JOINED}", f"4x H200, {JOINED}"
MESSAGES = ("send", "send_recv", "all_to_all_v")

PICTURES = (
    Picture(
        "kernels", "kernels.jsonl", f"a launch in a graph, without Python; {FOUR}",
        lambda row: of_harness(row, BUFFERS, "{op}") if row["op"] not in MESSAGES else iter(()),
        list(BUFFERS.values()),
    ),
    Picture(
        "kernels_2gpus", "kernels_2gpus.jsonl",
        f"a launch in a graph, without Python; 2x H100, {JOINED}",
        lambda row: of_harness(row, BUFFERS, "{op}") if row["op"] not in MESSAGES else iter(()),
        list(BUFFERS.values()),
    ),
    Picture(
        "ncclx_4gpus", "ncclx_4gpus.jsonl", f"from Python, bfloat16; {FOUR}",
        lambda row: of_harness(row, BACKENDS, "{op}, {mode}"),
        list(BACKENDS.values()), columns=2,
    ),
    Picture(
        "kernels_messages", "kernels_2gpus.jsonl",
        f"a launch in a graph, without Python; {MACHINE}",
        lambda row: of_harness(row, BUFFERS, "{op}") if row["op"] in MESSAGES else iter(()),
        list(BUFFERS.values()),
    ),
    Picture(
        "ncclx", "ncclx.jsonl", f"from Python, bfloat16; {MACHINE}",
        lambda row: of_harness(row, BACKENDS, "{op}, {mode}", commit="96fdea5"),
        list(BACKENDS.values()), columns=2,
    ),
    Picture(
        "ncclx_graphs", "ncclx.jsonl", f"from Python in graphs, bfloat16; {MACHINE}",
        lambda row: of_harness(row, BACKENDS, "{op}", commit="b22bc3b"),
        list(BACKENDS.values())[:2],
    ),
    Picture(
        "windows", "windows.jsonl", f"in graphs; {MACHINE}",
        lambda row: of_windows(row, TURNS), list(TURNS.values()), columns=1,
    ),
    Picture(
        "gpu_2gpus", "gpu_2gpus.jsonl", f"from Python, bfloat16; {MACHINE}",
        lambda row: of_harness(row, LIBRARY, "{mode}: {op}"), list(LIBRARY.values()),
        as_bars=True,
    ),
)  # fmt: skip


def samples_of(picture: Picture, reports: Path) -> list[Sample]:
    lines = (reports / picture.source).read_text().splitlines()
    return [sample for line in lines for sample in picture.read(json.loads(line))]


def style(sides: Sequence[str], side: str) -> dict[str, Any]:
    at = sides.index(side)
    return {"color": COLOURS[at], "label": side}


def draw_lines(axes: Axes, samples: Sequence[Sample], sides: Sequence[str], title: str) -> None:
    from matplotlib.ticker import LogLocator

    for side in sides:
        line = sorted((each for each in samples if each.side == side), key=lambda each: each.size)
        if not line:
            continue
        sizes = [each.size for each in line]
        p50 = [each.p50_us for each in line]
        marker = MARKERS[sides.index(side)]
        axes.plot(sizes, p50, marker=marker, markersize=3.5, linewidth=1.4, **style(sides, side))
        axes.fill_between(
            sizes, p50, [each.p99_us for each in line], color=COLOURS[sides.index(side)],
            alpha=0.13, linewidth=0,
        )  # fmt: skip
    format_axes(axes, {each.size for each in samples}, title, "bytes", "µs, median to p99")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,)))
    if legend := axes.get_legend():
        legend.remove()  # the picture has one for all


def draw_bars(axes: Axes, samples: Sequence[Sample], sides: Sequence[str], title: str) -> None:
    """Operations and sizes from the left, a bar a side."""
    places = list(dict.fromkeys((each.panel, each.size) for each in samples))
    width = 0.8 / len(sides)
    for side in sides:
        mine = [each for each in samples if each.side == side]
        at = [places.index((each.panel, each.size)) + sides.index(side) * width for each in mine]
        axes.bar(at, [each.p50_us for each in mine], width, **style(sides, side))
    labels = [f"{panel.split(': ')[1]}\n{human_bytes(size)}" for panel, size in places]
    middle = (len(sides) - 1) * width / 2
    axes.set_xticks([place + middle for place in range(len(places))], labels, fontsize=7)
    axes.set_ylabel("µs, median")
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)


def draw(picture: Picture, reports: Path) -> Path:
    """Writes the picture beside the lines; returns its file."""
    path = reports / f"{picture.name}.svg"
    pyplot = require_matplotlib(path)
    # Text stays text, and nothing depends on when and where this runs.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": picture.name})
    samples = samples_of(picture, reports)
    sides = picture.sides
    panel_of: Callable[[Sample], str] = lambda each: each.panel  # noqa: E731
    if picture.as_bars:
        panel_of = lambda each: each.panel.split(": ")[0]  # noqa: E731
    panels = list(dict.fromkeys(map(panel_of, samples)))
    columns = 1 if picture.as_bars else min(picture.columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (10.0, 3.2 * rows) if picture.as_bars else (4.6 * columns + 1, 3.4 * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_axis_off()
            continue
        shown = [each for each in samples if panel_of(each) == panels[place]]
        (draw_bars if picture.as_bars else draw_lines)(axes, shown, sides, panels[place])
    figure.suptitle(picture.title, fontsize=10)
    legend = dict(zip(*reversed(grid.flat[0].get_legend_handles_labels()), strict=True))
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    # No white space at the ends of lines, which matplotlib leaves.
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))
    return path


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.pictures", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--reports", type=Path, default=ROOT / "docs/reports", help="folder of the lines"
    )
    given = parser.parse_args(argv)
    for picture in PICTURES:
        if (given.reports / picture.source).is_file():
            print(draw(picture, given.reports))


if __name__ == "__main__":
    main()
