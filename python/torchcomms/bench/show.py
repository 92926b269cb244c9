"""Shows points as text: a table, a comparison, JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from torchcomms import _output
from torchcomms._table import human_bytes, table
from torchcomms.bench.errors import BenchError
from torchcomms.bench.result import Point

_HEADERS = (
    "op", "mode", "ranks", "bytes", "backend", "p50 us", "p99 us", "algbw GB/s", "busbw GB/s",
    "calls", "values",
)  # fmt: skip
_HOST_HEADERS = ("host us", "enqueue us")


def points_table(points: Sequence[Point]) -> str:
    """A table with one line per point; with times of the host's clock if points have them."""
    host = any(p.host_p50_us is not None for p in points)
    rows = []
    for p in points:
        values = {True: "ok", False: "WRONG", None: None}[p.correct]
        row: list[object] = [
            p.op, p.mode, p.ranks, human_bytes(p.bytes), p.backend, f"{p.p50_us:.1f}",
            f"{p.p99_us:.1f}", f"{p.algbw_gbps:.3f}", f"{p.busbw_gbps:.3f}",
            p.iterations * p.batch, values,
        ]  # fmt: skip
        if host:
            row += [_us(p.host_p50_us), _us(p.enqueue_p50_us)]
        rows.append(row)
    headers = (*_HEADERS, *_HOST_HEADERS) if host else _HEADERS
    return table(headers, rows, right=(2, 3, 5, 6, 7, 8, 9, 11, 12))


def _us(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


_BESIDE_HEADERS = (
    "op", "mode", "bytes", "backend", "product us", "p99 us", "beside op", "p99 us", "ratio",
    "op us", "beside product", "ratio", "blocks",
)  # fmt: skip


def beside_table(points: Sequence[Point]) -> str:
    """A table with one line per point, for measurements with a concurrent product.

    It lists the product alone and with the operation, the operation alone and with the product, and
    the ratios of these times.
    """
    rows = []
    for p in points:
        rows.append([
            p.op, p.mode, human_bytes(p.bytes), p.backend, _us(p.product_p50_us),
            _us(p.product_p99_us), _us(p.product_beside_p50_us), _us(p.product_beside_p99_us),
            _times(p.product_ratio), _us(p.p50_us), _us(p.operation_beside_p50_us),
            _times(p.operation_ratio), p.blocks,
        ])  # fmt: skip
    product = next((p.beside for p in points if p.beside is not None), "nothing")
    return f"beside {product}:\n" + table(
        _BESIDE_HEADERS, rows, right=(2, *range(4, len(_BESIDE_HEADERS)))
    )


def _times(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def compare_table(points: Sequence[Point]) -> str:
    """A table with one line per operation, mode and size, and the medians of all backends.

    It also has the ratio of the first backend's time to that of each other one; below 1 the first
    one is faster.

    Raises:
        BenchError: fewer than two backends.
    """
    backends = list(dict.fromkeys(p.backend for p in points))
    if len(backends) < 2:
        raise BenchError("a comparison needs at least two backends")
    by_place: dict[tuple[str, str, int], dict[str, float]] = {}
    for p in points:
        by_place.setdefault((p.op, p.mode, p.bytes), {})[p.backend] = p.p50_us
    first, *other_backends = backends
    headers = ["op", "mode", "bytes", *(f"{b} us" for b in backends)]
    headers += [f"{first} / {other}" for other in other_backends]
    rows = []
    for (op, mode, size), medians in by_place.items():
        row: list[object] = [op, mode, human_bytes(size)]
        row += [f"{medians[b]:.1f}" if b in medians else None for b in backends]
        for other in other_backends:
            both = first in medians and other in medians
            row.append(f"{medians[first] / medians[other]:.3f}" if both else None)
        rows.append(row)
    return table(headers, rows, right=range(2, len(headers)))


def write_lines(points: Iterable[Point], path: Path) -> None:
    """Writes one JSON object per line, and replaces the file."""
    _output.write(path, "".join(point.to_json() + "\n" for point in points))
