"""One simulated point, and its text forms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchcomms import _output
from torchcomms._table import human_bytes, table
from torchcomms.sim.plan import BOOTSTRAP


@dataclass(frozen=True)
class Point:
    """One line of the result file.

    All fields but `wall_s` and `torchcomms` are equal in every run.
    """

    op: str
    algorithm: str
    ranks: int
    bytes: int  # of the vector, of each rank's block, or of each rank's blob in bootstrap
    time_us: float  # until the last rank is done
    messages_max: int  # the most that one rank sends
    messages_mean: float
    bytes_max: int
    bytes_mean: float
    enumerated: int  # simulated ranks; each represents ranks / enumerated ranks
    memory_per_rank_bytes: float  # memory of the simulator
    events: int
    wall_s: float
    details: dict[str, Any]  # fields of this operation; see docs/concepts/simulator.md
    settings: dict[str, float]
    torchcomms: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Point:
        return Point(**json.loads(text))


def human_time(us: float) -> str:
    """Converts 12.3 to "12.3 us", 4500 to "4.5 ms", 2e6 to "2 s"."""
    for limit, factor, unit in ((1e3, 1, "us"), (1e6, 1e3, "ms"), (float("inf"), 1e6, "s")):
        if us < limit:
            return f"{us / factor:.4g} {unit}"
    raise AssertionError("unreachable: the last unit always returns")


def points_table(points: Sequence[Point]) -> str:
    """A table with one line per point."""
    if points[0].op == BOOTSTRAP:
        return _bootstrap_table(points)
    headers = (
        "op", "bytes", "ranks", "algorithm", "time", "steps", "msgs", "sent max", "sent mean",
        "ran", "B/rank", "wall s",
    )  # fmt: skip
    rows = [
        (
            p.op, human_bytes(p.bytes), p.ranks, p.algorithm, human_time(p.time_us),
            p.details["steps"], p.messages_max, human_bytes(p.bytes_max),
            human_bytes(round(p.bytes_mean)), _share(p), f"{p.memory_per_rank_bytes:.0f}",
            f"{p.wall_s:.1f}",
        )
        for p in points
    ]  # fmt: skip
    return table(headers, rows, right=(1, 2, 4, 5, 6, 7, 8, 9, 10, 11))


def _share(point: Point) -> str:
    """Returns "all", or the number of simulated ranks that represent all ranks."""
    return "all" if point.enumerated == point.ranks else str(point.enumerated)


def _bootstrap_table(points: Sequence[Point]) -> str:
    headers = (
        "ranks", "time", "store busy", "rounds", "msgs", "sent", "store ops", "done", "failed",
        "B/rank", "wall s",
    )  # fmt: skip
    rows = [
        (
            p.ranks, human_time(p.time_us), human_time(p.details["store_us"]), p.details["rounds"],
            p.messages_max, human_bytes(p.bytes_max), p.details["store_requests"]["max"],
            p.details["done"], _failed(p.details), f"{p.memory_per_rank_bytes:.0f}",
            f"{p.wall_s:.1f}",
        )
        for p in points
    ]  # fmt: skip
    return table(headers, rows, right=range(len(headers)))


def _failed(details: Mapping[str, Any]) -> str:
    failed = details["failed"]
    if failed == 0:
        return "0"
    if details["killed"] == 0:
        return str(failed)
    noticed = human_time(details["noticed_us"])
    return f"{failed} ({details['naming']} name it, {noticed})"


def notes(points: Sequence[Point]) -> str:
    """Explains columns whose meaning is not plain; empty if there are none."""
    lines = []
    drawn = [p.details["sampled"] for p in points if p.enumerated != p.ranks]
    if drawn:
        steps = str(drawn[0]) if len(set(drawn)) == 1 else f"{min(drawn)} to {max(drawn)}"
        lines.append(
            "ran: simulated ranks; each represents equally many ranks with the same steps;"
            f" {steps} steps of other ranks were drawn and compared"
        )
    return "\n".join(lines)


def write_lines(points: Iterable[Point], path: Path) -> None:
    """Writes one JSON object per line, and replaces the file."""
    _output.write(path, "".join(point.to_json() + "\n" for point in points))
