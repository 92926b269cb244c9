"""Draws points: time and messages over the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchcomms import _output
from torchcomms._table import human_bytes
from torchcomms.bench.plot import COLOURS, MARKERS, format_axes, require_matplotlib
from torchcomms.sim.result import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(points: Sequence[Point], path: Path) -> None:
    """Draws all points into one file, of the format that the suffix of `path` names."""
    pyplot = require_matplotlib(path)
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    _draw(axes[0], points, lambda p: p.time_us / 1e3, "time, all ranks done", "ms")
    _draw(axes[1], points, lambda p: p.messages_max, "messages sent by a rank", "messages")
    figure.suptitle(f"{points[0].op}, simulated")
    with _output.writing(path):
        figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw(
    axes: Axes, points: Sequence[Point], value: Callable[[Point], float], title: str, unit: str
) -> None:
    sizes = {p.bytes for p in points}
    lines = dict.fromkeys((p.algorithm, p.bytes) for p in points)
    for at, (algorithm, size) in enumerate(lines):
        line = [p for p in points if (p.algorithm, p.bytes) == (algorithm, size)]
        axes.plot(
            [p.ranks for p in line],
            [value(p) for p in line],
            color=COLOURS[at % len(COLOURS)],
            marker=MARKERS[at % len(MARKERS)],
            label=algorithm if len(sizes) == 1 else f"{algorithm}, {human_bytes(size)}",
            markersize=4.5,
            linewidth=1.7,
        )
    format_axes(axes, {p.ranks for p in points}, title, "ranks", unit)
