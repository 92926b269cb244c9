"""Measures the algorithms of our GPU kernels and NCCL, for a tuning file.

Each operation, kind of elements and mode is one run of the harness. In it every algorithm is a
side, selected by a hint; the built-in choice is one more side. The winner at each size becomes a
line `kernel` for this model of GPU and this number of ranks.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from torchcomms import _environment
from torchcomms.algorithms import gpu_word
from torchcomms.bench.errors import BenchError
from torchcomms.bench.launch import launch
from torchcomms.bench.plan import DTYPES, Plan, check_seconds
from torchcomms.bench.result import Point, machine
from torchcomms.bench.tune import CLEARLY, LARGEST, finished

Report = Callable[[str], None]

OPERATIONS = {  # the value: whether it reduces
    "all_reduce": True,
    "all_gather_single": False,
    "reduce_scatter_single": True,
    "all_to_all_single": False,
    "broadcast": False,
    "reduce": True,
    "gather_single": False,
}
# The hint that selects an algorithm, and whether the backend can use NCCL instead of kernels.
BACKENDS = {"ncclx": ("algorithm", True), "ctran": ("kernel_algorithm", False)}
_ONE_HOP, _TWO_HOPS = ("one_shot_ll", "one_shot_line"), ("two_shot_line",)
_HAVE_TWO_HOPS = ("all_reduce", "broadcast", "reduce")
_ON_REGIONS = tuple(each for each in OPERATIONS if each != "gather_single")
# The devices, by their torch device type. "host" is for tests: host memory replaces a GPU's if the
# kernel library is one for host memory.
DEVICES = {"cuda": "cuda", "host": "cpu"}
MODES = {"eager": "sync", "graph": "graph"}
TENSORS = ("plain", "registered")  # registered: tensors in windows, by a hint
ON_REGION = "region"


@dataclass(frozen=True)
class Place:
    """Further conditions of a line: the kind of tensors, and the limit of thread blocks."""

    tensors: str = "plain"
    within: int = 0  # 0: any number

    @property
    def words(self) -> str:
        """The end of a line; "" without conditions."""
        return (" tensors registered" if self.tensors == "registered" else "") + (
            f" within {self.within}" if self.within else ""
        )


@dataclass(frozen=True)
class Run:
    """What one run of the harness measures."""

    operation: str
    dtype: str
    mode: str
    place: Place


@dataclass(frozen=True)
class Effort:
    """What to measure, and for how long."""

    operations: Sequence[str]
    ranks: int
    sizes: Sequence[int]
    device: str = "cuda"
    backend: str = "ncclx"
    dtypes: Sequence[str] = ("bfloat16",)
    modes: Sequence[str] = ("eager", "graph")
    blocks: Sequence[int] = (64, 128)
    seconds: float = 0.05
    tensors: Sequence[str] = ("plain",)
    within: Sequence[int] = ()

    def check(self) -> None:
        """Raises BenchError for the first wrong value, with the allowed ones."""
        for label, values, known in (
            ("operation", self.operations, OPERATIONS),
            ("backend", [self.backend], BACKENDS),
            ("device", [self.device], DEVICES),
            ("dtype", self.dtypes, DTYPES),
            ("mode", self.modes, MODES),
            ("kind of tensors", self.tensors, TENSORS),
        ):
            for value in values:
                if value not in known:
                    # No kernels run on the CPU, but `tune` measures other algorithms there.
                    allowed = ["cpu", *known] if label == "device" else known
                    raise BenchError(f"unknown {label} {value!r}; allowed: {', '.join(allowed)}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise BenchError("device cuda: torch sees no GPU here")
        if not 2 <= self.ranks <= 8:
            raise BenchError(f"ranks: {self.ranks} is not from 2 to 8, as kernels require")
        check_seconds(self.seconds)
        kinds = [kind_of(dtype) for dtype in self.dtypes]
        if len(set(kinds)) != len(kinds):
            raise BenchError("dtypes: pass at most one float type and one integer type")
        if not all(1 <= each <= 1024 for each in self.blocks) or not self.blocks:
            raise BenchError("blocks: allowed are whole numbers from 1 to 1024")
        if not all(1 <= each <= 1024 for each in self.within):
            raise BenchError("within: allowed are whole numbers from 1 to 1024")
        if self.device == "host" and "graph" in self.modes:
            raise BenchError("mode graph needs device cuda, not host")
        if self.device == "cuda" and torch.cuda.device_count() < self.ranks:
            raise BenchError(f"{self.ranks} ranks, but torch sees {torch.cuda.device_count()} GPUs")

    def gpu(self) -> str:
        """The model of the GPU, as tuning files name it."""
        return gpu_word(torch.device(DEVICES[self.device], 0))

    def sides(self, operation: str, place: Place, regions: Mapping[int, str]) -> Sides:
        """The candidates by their side of the harness. The first one is the built-in choice.

        Args:
            regions: by blocks, a tuning file with which peers write all registered tensors
                directly.
        """
        hint, has_library = BACKENDS[self.backend]
        algorithm_names = _ONE_HOP + (_TWO_HOPS if operation in _HAVE_TWO_HOPS else ())
        most = f"/{place.within}" if place.within else ""
        found = {f"{self.backend}@{hint}=auto{most}": Candidate("kernels", 0)}
        if has_library:
            found[f"{self.backend}@{hint}=nccl"] = Candidate("nccl", 0)
        for algorithm_name, blocks in itertools.product(algorithm_names, self.blocks_of(place)):
            found[f"{self.backend}@{hint}={algorithm_name}/{blocks}"] = Candidate(
                algorithm_name, blocks
            )
        if place.tensors == "plain":
            return found
        # The library alone has no windows, and treats tensors in windows as ordinary ones.
        found = {
            side if each.algorithm == "nccl" else f"{side}@registered=true": each
            for side, each in found.items()
        }
        for blocks, path in regions.items():
            side = f"{self.backend}@tuning_file={path}@registered=true"
            found[side] = Candidate(ON_REGION, blocks)
        return found

    def blocks_of(self, place: Place) -> list[int]:
        """The numbers of blocks that algorithms are measured with."""
        if not place.within:
            return list(self.blocks)
        return sorted({min(each, place.within) for each in self.blocks})

    def places(self) -> list[Place]:
        """The conditions, in the order of their lines: the first line that fits is used."""
        limits = [*sorted(set(self.within)), 0]
        tensors = [each for each in reversed(TENSORS) if each in self.tensors]
        return [Place(*each) for each in itertools.product(tensors, limits)]

    def runs(self) -> Iterator[Run]:
        """Yields all runs. Operations that do not reduce are measured with one dtype."""
        for operation, place in itertools.product(self.operations, self.places()):
            dtypes = self.dtypes if OPERATIONS[operation] else self.dtypes[:1]
            for dtype, mode in itertools.product(dtypes, self.modes):
                yield Run(operation, dtype, mode, place)


@dataclass(frozen=True)
class Candidate:
    """A way of running an operation, in the words of a tuning file."""

    algorithm: str
    blocks: int

    @property
    def words(self) -> str:
        return f"algorithm {self.algorithm} blocks {self.blocks}"


@dataclass(frozen=True)
class Timing:
    """The time of one candidate at one size."""

    size: int
    candidate: Candidate
    took_us: float


@dataclass(frozen=True)
class Winners:
    """The winners of one run: for each range of sizes, the words of the fastest candidate."""

    operation: str
    kind: str
    mode: str
    ranges: tuple[tuple[int, int, str], ...]
    place: Place = Place()


Sides = dict[str, Candidate]


def kind_of(dtype: str) -> str:
    return "float" if DTYPES[dtype].is_floating_point else "integer"


def measure(effort: Effort, progress: Report, note: Report) -> list[Winners]:
    """Runs all measurements on new processes. Raises BenchError."""
    effort.check()
    # An older tuning must not choose algorithms in the measuring processes.
    with _environment.variables(TORCHCOMM_CTRAN_TUNING_FILE=os.devnull):
        return [_winners(effort, run, progress, note) for run in effort.runs()]


def _winners(effort: Effort, run: Run, progress: Report, note: Report) -> Winners:
    timings = []
    with _regions(effort, run) as regions:
        sides = effort.sides(run.operation, run.place, regions)
        plan = Plan(
            ops=[run.operation],
            backends=list(sides),
            sizes=effort.sizes,
            dtype=run.dtype,
            modes=[MODES[run.mode]],
            device=DEVICES[effort.device],
            seconds=effort.seconds,
            rounds=5,
        )
        for point in launch(plan, effort.ranks, progress, note):
            timing = timing_of(sides[point.backend], point)
            timings += [timing] if timing is not None else []
    kind = kind_of(run.dtype) if OPERATIONS[run.operation] else "any"
    return Winners(run.operation, kind, run.mode, ranges(timings), run.place)


@contextmanager
def _regions(effort: Effort, run: Run) -> Iterator[dict[int, str]]:
    """By blocks, a tuning file that selects regions at any size."""
    if run.place.tensors == "plain" or run.operation not in _ON_REGIONS:
        yield {}
        return
    with TemporaryDirectory() as folder:
        paths = {}
        for blocks in (run.place.within, *effort.blocks_of(run.place)):
            path = Path(folder) / f"{blocks}.txt"
            always = ((0, LARGEST, Candidate(ON_REGION, blocks).words),)
            winner = Winners(run.operation, "any", "any", always, Place("registered"))
            path.write_text("\n".join(["torchcomms tuning 1", *lines(effort, [winner]), ""]))
            paths[blocks] = str(path)
        yield paths


def timing_of(asked: Candidate, point: Point) -> Timing | None:
    """The time of a candidate, or None if another algorithm ran because of the size."""
    if point.correct is False:
        raise BenchError(
            f"{point.op} by {asked.algorithm} gave wrong values at {point.bytes} bytes"
        )
    if asked.algorithm == "kernels":  # the built-in choice may be NCCL
        asked = Candidate("nccl", 0) if point.algorithm == "nccl" else asked
    # Region runs do not report their algorithm.
    elif asked.algorithm not in (point.algorithm, ON_REGION):
        return None
    return Timing(point.bytes, asked, point.p50_us)


def ranges(timings: Sequence[Timing]) -> tuple[tuple[int, int, str], ...]:
    """The first and last size of each range, and its fastest candidate. Each size starts a range.

    The winner at the next smaller size, or at first the built-in choice, is replaced only by a
    candidate that is clearly faster.
    """
    found: list[tuple[int, int, str]] = []
    preferred: Candidate | None = None
    by_size = {size: [t for t in timings if t.size == size] for size in {t.size for t in timings}}
    for size in sorted(by_size):
        at_size = by_size[size]
        best = min(at_size, key=lambda timing: timing.took_us)
        kept = next((t for t in at_size if t.candidate == preferred), at_size[0])
        preferred = kept.candidate if kept.took_us * CLEARLY <= best.took_us else best.candidate
        if found and found[-1][2] == preferred.words:
            continue
        if found:
            found[-1] = (found[-1][0], size - 1, found[-1][2])
        found.append((size if found else 0, LARGEST, preferred.words))
    return tuple(found)


def lines(effort: Effort, winners: Sequence[Winners]) -> list[str]:
    """The lines of the tuning file. Equal winners in both modes share one line."""
    result = []
    place = f"gpu {effort.gpu()} ranks {effort.ranks}..{effort.ranks}"
    for run in winners:
        facts = (run.operation, run.kind, run.place)
        same = [w for w in winners if (w.operation, w.kind, w.place) == facts]
        is_any = len(same) == len(MODES) and len({w.ranges for w in same}) == 1
        if is_any and run is not same[0]:
            continue
        mode = "any" if is_any else run.mode
        result += [
            f"kernel {run.operation} {place} bytes {first}..{last} kind {run.kind} mode {mode} "
            f"{words}{run.place.words}"
            for first, last, words in run.ranges
        ]
    return result


def merged(old: str, effort: Effort, new: Sequence[str]) -> str:
    """Puts these lines into `old`, a tuning's text or "", and removes those they replace."""
    place = f"gpu {effort.gpu()} ranks {effort.ranks}..{effort.ranks} "
    title = f"# kernels, gpu {effort.gpu()}, {effort.ranks} ranks: "
    about = (title, *(f"kernel {operation} {place}" for operation in effort.operations))
    kept = old.splitlines() or ["torchcomms tuning 1"]
    kept = [each for each in kept if not each.startswith(about)]
    if not new:
        return finished(kept)
    facts = machine(DEVICES[effort.device])
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return finished([*kept, f"{title}{facts['hardware']}, torch {facts['torch']}, {day}", *new])
