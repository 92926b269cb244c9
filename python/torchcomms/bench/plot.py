"""Draws points: latency and bandwidth over message size, one row of panels per operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchcomms import _output
from torchcomms._table import human_bytes
from torchcomms.bench.errors import BenchError
from torchcomms.bench.result import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg", ".pdf")

# Distinguishable also without color vision (Okabe and Ito 2008), and by their markers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = {"eager": "-", "async": "--", "graph": ":"}


def require_matplotlib(path: Path) -> ModuleType:
    """Returns matplotlib.pyplot, for drawing to files only. Call it before the measurement.

    Raises:
        BenchError: matplotlib is missing, or `path` has a suffix that it cannot write.
        InvalidArgument: the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise BenchError(f"plot: {path} must end in one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise BenchError("a plot needs matplotlib: pip install matplotlib") from None
    _output.prepare(path)
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def plot(points: Sequence[Point], path: Path) -> None:
    """Draws all points into one file, of the format that the suffix of `path` names."""
    pyplot = require_matplotlib(path)
    ops = list(dict.fromkeys(p.op for p in points))
    if not ops:
        raise BenchError("plot: no point to draw")
    figure, axes = pyplot.subplots(
        len(ops), 2, figsize=(11, 4.2 * len(ops)), squeeze=False, layout="constrained"
    )
    for (left, right), op in zip(axes, ops, strict=True):
        line = [p for p in points if p.op == op]
        moving = any(p.bytes for p in line)
        draw(left, right if moving else None, line)
        if not moving:
            right.set_axis_off()
    some = points[0]
    figure.suptitle(f"{some.ranks} ranks, {some.dtype}, {some.hardware}, torch {some.torch}")
    with _output.writing(path):
        figure.savefig(path, dpi=130)
    pyplot.close(figure)


def draw(latency: Axes, bandwidth: Axes | None, points: Sequence[Point]) -> None:
    """Draws the points of one operation: medians as lines, up to the 99th percentile as a band.

    `bandwidth` may be None, for a picture with one panel.
    """
    backends = list(dict.fromkeys(p.backend for p in points))
    modes = {p.mode for p in points}
    for backend, mode in dict.fromkeys((p.backend, p.mode) for p in points):
        line = sorted(
            (p for p in points if (p.backend, p.mode) == (backend, mode)), key=lambda p: p.bytes
        )
        at = backends.index(backend) % len(COLOURS)
        style: dict[str, Any] = {
            "color": COLOURS[at],
            "marker": MARKERS[at],
            "linestyle": _LINES[mode],
            "markersize": 4.5,
            "linewidth": 1.7,
            "label": backend if len(modes) == 1 else f"{backend}, {mode}",
        }
        sizes = [p.bytes for p in line]
        latency.plot(sizes, [p.p50_us for p in line], **style)
        band = ([p.p50_us for p in line], [p.p99_us for p in line])
        latency.fill_between(sizes, *band, color=COLOURS[at], alpha=0.13, linewidth=0)
        if bandwidth is not None:
            bandwidth.plot(sizes, [p.busbw_gbps for p in line], **style)
    _label(latency, points, f"{points[0].op}: time, median to p99", "µs")
    if bandwidth is not None:
        _label(bandwidth, points, f"{points[0].op}: bus bandwidth", "GB/s")


def _label(axes: Axes, points: Sequence[Point], title: str, unit: str) -> None:
    from matplotlib.ticker import LogLocator

    format_axes(axes, {p.bytes for p in points}, title, "bytes", unit)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 2000 else (1,)))


def format_axes(axes: Axes, across: Iterable[int], title: str, x_label: str, y_label: str) -> None:
    """Sets scales, ticks, grid, title and legend, equal in all pictures.

    `across` are the values on the x axis.
    """
    values = sorted(set(across))
    shown = values[:: -(-len(values) // 9)]  # at most 9 labels
    if values[0] > 0:
        axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xticks(shown, [human_bytes(value) for value in shown])
    axes.minorticks_off()
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
