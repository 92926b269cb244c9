"""Measures the algorithms of backend `ctran`, and writes the fastest ones to a tuning file.

Each operation is one run of the harness, in which every algorithm is a side, selected by a hint.
The fastest algorithm at each size becomes a line `use`. The cost model decides where nothing was
measured; its constants are fitted to all times.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchcomms import _comms, _environment, _output, algorithms
from torchcomms.bench.errors import BenchError
from torchcomms.bench.launch import launch
from torchcomms.bench.plan import Plan, check_seconds
from torchcomms.bench.result import Point

Report = Callable[[str], None]

# The measured operation for each operation of the catalogue.
BENCHES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather_single",
    "reduce_scatter": "reduce_scatter_single",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather_single",
    "scatter": "scatter",
    "all_to_all": "all_to_all_single",
}
LARGEST = 1 << 62
# The winner at a size of at most SMALL also wins below, and at one of at least LARGE also above.
# Otherwise a winner says nothing about sizes that were not measured.
SMALL, LARGE = 1 << 10, 1 << 20
REACH = 4  # times the largest size measured: the default step between sizes
CLEARLY = 0.9  # of the time; a smaller gain is noise
_CONSTANTS = ("step_ns", "message_ns", "byte_ps", "reduce_ps")


@dataclass(frozen=True)
class Effort:
    """What to measure, and for how long."""

    operations: Sequence[str]
    ranks: int
    sizes: Sequence[int]
    wire: str = "shm"
    seconds: float = 0.1

    def check(self) -> None:
        """Raises BenchError for the first wrong value, with the allowed ones."""
        for operation in self.operations:
            if operation not in BENCHES:
                raise BenchError(f"unknown operation {operation!r}; allowed: {', '.join(BENCHES)}")
        if len(set(self.operations)) != len(self.operations):
            raise BenchError(f"an operation is given twice in {', '.join(self.operations)}")
        check_seconds(self.seconds)
        if self.ranks < 2:
            raise BenchError(f"ranks: {self.ranks} is not at least 2")
        if self.wire not in ("shm", "tcp"):
            raise BenchError(f"unknown wire {self.wire!r}; allowed: shm, tcp")

    def cost(self, operation: str, size: int) -> list[dict[str, Any]]:
        # Over TCP on one host, all ranks are on this host too.
        return algorithms.costs(
            operation, self.ranks, size, wire=self.wire, local_size=self.ranks, tuning=""
        )

    def candidates(self, operation: str) -> list[str]:
        return [row["name"] for row in self.cost(operation, 1 << 20) if not row["why_not"]]

    def side(self, algorithm: str) -> str:
        return f"ctran@transport={self.wire}@algorithm={algorithm}"


@dataclass(frozen=True)
class Timing:
    """One algorithm at one size: its cost in the model, and its measured time."""

    operation: str
    size: int
    cost: dict[str, Any]
    took_us: float


def measure(effort: Effort, progress: Report, note: Report) -> list[Timing]:
    """Runs all measurements on new processes. Raises BenchError."""
    effort.check()
    # An older tuning must not choose the chunk sizes of the measuring processes.
    with _environment.variables(TORCHCOMM_CTRAN_TUNING_FILE=os.devnull):
        return list(_timings(effort, progress, note))


def _timings(effort: Effort, progress: Report, note: Report) -> Iterator[Timing]:
    for operation in effort.operations:
        sides = {effort.side(name): name for name in effort.candidates(operation)}
        plan = Plan(
            ops=[BENCHES[operation]],
            backends=list(sides),
            sizes=effort.sizes,
            seconds=effort.seconds,
            rounds=5,
        )
        for point in launch(plan, effort.ranks, progress, note):
            yield _timing(effort, operation, sides[point.backend], point)


def _timing(effort: Effort, operation: str, name: str, point: Point) -> Timing:
    if point.correct is False:
        raise BenchError(f"{operation} by {name} gave wrong values at {point.bytes} bytes")
    (cost,) = [row for row in effort.cost(operation, point.bytes) if row["name"] == name]
    return Timing(operation, point.bytes, cost, point.p50_us)


def overrides(effort: Effort, timings: Sequence[Timing]) -> list[str]:
    """A line for each range of sizes that one algorithm wins. Each measured size starts a range.

    Sizes far from the measured ones are left to the model. The winner at the next smaller size, or
    at first the model's choice, is replaced only by an algorithm that is clearly faster. With few
    ranks several algorithms are identical.
    """
    lines = []
    for operation in dict.fromkeys(t.operation for t in timings):
        own_timings = [t for t in timings if t.operation == operation]
        sizes = sorted({t.size for t in own_timings})
        winners: list[Timing] = []
        for size in sizes:
            at_size = [t for t in own_timings if t.size == size]
            preferred = winners[-1] if winners else min(at_size, key=_estimate)
            winners.append(_winner(at_size, preferred.cost["name"]))
        texts = [f"{w.cost['name']} chunk_bytes {w.cost['chunk_bytes']}" for w in winners]
        first = 0 if sizes[0] <= SMALL else sizes[0]
        end = LARGEST if sizes[-1] >= LARGE else REACH * sizes[-1] - 1
        for i, text in enumerate(texts):
            if i + 1 < len(texts) and texts[i + 1] == text:
                continue
            last = sizes[i + 1] - 1 if i + 1 < len(sizes) else end
            lines.append(
                f"use {operation} wire {effort.wire} ranks {effort.ranks}..{effort.ranks} "
                f"bytes {first}..{last} algorithm {text}"
            )
            first = last + 1
    return lines


def _estimate(timing: Timing) -> float:
    return float(timing.cost["estimate_us"])


def _winner(timings: Sequence[Timing], preferred: str) -> Timing:
    best = min(timings, key=lambda t: t.took_us)
    for timing in timings:
        if timing.cost["name"] == preferred and timing.took_us * CLEARLY <= best.took_us:
            return timing
    return best


def constants(effort: Effort, timings: Sequence[Timing], cores: int) -> str | None:
    """The line of the wire's constants: least squares of relative errors, none below zero.

    Algorithms that pass a vector on along a chain or tree are excluded, because their time is not
    linear in their cost.

    Returns: None if the measurements cannot separate the constants: sizes too far from the small or
    large ones, only two ranks, or only operations that do not reduce.
    """
    oversubscription = max(1.0, effort.ranks / cores)
    rows, fitting = [], []
    for t in timings:
        if t.cost["name"] in ("chain", "tree") or t.took_us <= 0:
            continue
        cost, took_ns = t.cost, t.took_us * 1000
        moved = max(cost["sent_bytes"], cost["received_bytes"]) / 1000
        row = (
            cost["steps"],
            oversubscription * cost["messages"],
            oversubscription * moved,
            oversubscription * cost["reduced_bytes"] / 1000,
        )
        rows.append([value / took_ns for value in row])
        fitting.append(1.0)
    if len(rows) < 2 * len(_CONSTANTS):
        return None
    sizes = [t.size for t in timings]
    a = torch.tensor(rows, dtype=torch.float64)
    rank = torch.linalg.matrix_rank(a / a.norm(dim=0).clamp_min(1e-300))
    if min(sizes) > SMALL or max(sizes) < LARGE or rank < len(_CONSTANTS):
        return None
    b = torch.tensor(fitting, dtype=torch.float64).unsqueeze(1)
    free = list(range(len(_CONSTANTS)))
    fitted = [0.0] * len(_CONSTANTS)
    while free:
        solved = torch.linalg.lstsq(a[:, free], b, driver="gelsd").solution.squeeze(1).tolist()
        if min(solved) >= 0:
            for column, value in zip(free, solved, strict=True):
                fitted[column] = value
            break
        free.pop(solved.index(min(solved)))
    how = "crowded" if oversubscription > 1 else "apart"
    constants_text = " ".join(f"{n} {v:.6g}" for n, v in zip(_CONSTANTS, fitted, strict=True))
    return f"wire {effort.wire} {how} {constants_text}"


def merged(old: str, effort: Effort, line: str | None, uses: Sequence[str]) -> str:
    """Puts these lines into `old`, a tuning's text or "", and removes those they replace."""
    kept = old.splitlines() or ["torchcomms tuning 1"]
    about = tuple(
        f"use {operation} wire {effort.wire} ranks {effort.ranks}..{effort.ranks} "
        for operation in effort.operations
    )
    if line is not None:
        about += (" ".join(line.split()[:3]) + " ",)
    kept = [each for each in kept if not each.startswith(about)]
    return finished([*kept, *([line] if line is not None else []), *uses])


def finished(lines: Sequence[str]) -> str:
    """The checked text of a tuning with these lines and all constants; users' comments first."""
    header, *rest = _comms._check_tuning("\n".join(lines) + "\n", "the new tuning").splitlines()
    comments = [each for each in lines if each.startswith("#")]
    return "\n".join([header, *comments, *rest]) + "\n"


def check(text: str, path: Path) -> None:
    """Raises InvalidArgument for a wrong tuning, with the file, line and field."""
    _comms._check_tuning(text, f"the tuning file {path}")


def write(text: str, path: Path) -> None:
    """Replaces the file atomically, so that no process reads half of it."""
    with _output.writing(path):
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(path)
