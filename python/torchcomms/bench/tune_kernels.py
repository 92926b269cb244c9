"""Measures the algorithms of our GPU kernels against each other, and NCCL's, for a tuning file.

Each operation, kind of elements and mode is one run of the harness, in which every algorithm is a
side with its hint, and the built-in choice is one more. What won at each size becomes a line
`kernel` about this model of GPU and this number of ranks.
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

OPERATIONS = {  # whether it adds
    "all_reduce": True,
    "all_gather_single": False,
    "reduce_scatter_single": True,
    "all_to_all_single": False,
    "broadcast": False,
    "reduce": True,
    "gather_single": False,
}
# The hint that asks for an algorithm, and who runs what the kernels are not best at.
BACKENDS = {"ncclx": ("algorithm", True), "ctran": ("kernel_algorithm", False)}
_ONE_HOP, _TWO_HOPS = ("one_shot_ll", "one_shot_line"), ("two_shot_line",)
_HAVE_TWO_HOPS = ("all_reduce", "broadcast", "reduce")
_ON_REGIONS = tuple(each for each in OPERATIONS if each != "gather_single")
# Where tensors are, and on which device that is: host memory stands for a GPU where the library of
# kernels is one for it.
DEVICES = {"cuda": "cuda", "host": "cpu"}
MODES = {"eager": "sync", "graph": "graph"}
TENSORS = ("plain", "registered")  # those that are in windows, by hint
ON_REGION = "region"


@dataclass(frozen=True)
class Place:
    """What a line may be about besides: which tensors, and how many thread blocks there may be."""

    tensors: str = "plain"
    within: int = 0  # 0: any number

    @property
    def words(self) -> str:
        """At the end of a line; "" where it is about all that no other line is about."""
        return (" tensors registered" if self.tensors == "registered" else "") + (
            f" within {self.within}" if self.within else ""
        )


@dataclass(frozen=True)
class Run:
    """What is measured at once."""

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
        """Raises BenchError for the first thing that cannot work, naming what is allowed."""
        for label, words, known in (
            ("operation", self.operations, OPERATIONS),
            ("backend", [self.backend], BACKENDS),
            ("device", [self.device], DEVICES),
            ("dtype", self.dtypes, DTYPES),
            ("mode", self.modes, MODES),
            ("kind of tensors", self.tensors, TENSORS),
        ):
            for word in words:
                if word not in known:
                    # On the CPU no kernels run, but `tune` measures what runs there.
                    allowed = ["cpu", *known] if label == "device" else known
                    raise BenchError(f"unknown {label} {word!r}; allowed: {', '.join(allowed)}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise BenchError("device cuda: torch sees no GPU here")
        if not 2 <= self.ranks <= 8:
            raise BenchError(f"ranks: {self.ranks} is not one of 2 to 8, which kernels take")
        check_seconds(self.seconds)
        kinds = [kind_of(dtype) for dtype in self.dtypes]
        if len(set(kinds)) != len(kinds):
            raise BenchError("dtypes: one of floats and one of integers, not two of a kind")
        if not all(1 <= each <= 1024 for each in self.blocks) or not self.blocks:
            raise BenchError("blocks: whole numbers from 1 to 1024")
        if not all(1 <= each <= 1024 for each in self.within):
            raise BenchError("within: whole numbers of thread blocks from 1 to 1024")
        if self.device == "host" and "graph" in self.modes:
            raise BenchError("mode graph needs device cuda, not host")
        if self.device == "cuda" and torch.cuda.device_count() < self.ranks:
            raise BenchError(f"{self.ranks} ranks, but torch sees {torch.cuda.device_count()} GPUs")

    def gpu(self) -> str:
        """The model of GPU, as tuning files have it."""
        return gpu_word(torch.device(DEVICES[self.device], 0))

    def sides(self, operation: str, place: Place, regions: Mapping[int, str]) -> Sides:
        """By side of the harness; the first is the built-in choice. `regions`: by blocks, a tuning
        file that has all registered tensors written by the peers."""
        hint, has_library = BACKENDS[self.backend]
        words = _ONE_HOP + (_TWO_HOPS if operation in _HAVE_TWO_HOPS else ())
        most = f"/{place.within}" if place.within else ""
        found = {f"{self.backend}@{hint}=auto{most}": Candidate("kernels", 0)}
        if has_library:
            found[f"{self.backend}@{hint}=nccl"] = Candidate("nccl", 0)
        for word, blocks in itertools.product(words, self.blocks_of(place)):
            found[f"{self.backend}@{hint}={word}/{blocks}"] = Candidate(word, blocks)
        if place.tensors == "plain":
            return found
        # The library alone has no windows, and takes tensors there as all others.
        found = {
            side if each.algorithm == "nccl" else f"{side}@registered=true": each
            for side, each in found.items()
        }
        for blocks, path in regions.items():
            side = f"{self.backend}@tuning_file={path}@registered=true"
            found[side] = Candidate(ON_REGION, blocks)
        return found

    def blocks_of(self, place: Place) -> list[int]:
        """What algorithms are measured with."""
        if not place.within:
            return list(self.blocks)
        return sorted({min(each, place.within) for each in self.blocks})

    def places(self) -> list[Place]:
        """In the order of their lines, of which the first that fits counts."""
        withins = [*sorted(set(self.within)), 0]
        tensors = [each for each in reversed(TENSORS) if each in self.tensors]
        return [Place(*each) for each in itertools.product(tensors, withins)]

    def runs(self) -> Iterator[Run]:
        """What only moves does so in one dtype."""
        for operation, place in itertools.product(self.operations, self.places()):
            dtypes = self.dtypes if OPERATIONS[operation] else self.dtypes[:1]
            for dtype, mode in itertools.product(dtypes, self.modes):
                yield Run(operation, dtype, mode, place)


@dataclass(frozen=True)
class Candidate:
    """A way of running an operation, in a tuning file's words."""

    algorithm: str
    blocks: int

    @property
    def words(self) -> str:
        return f"algorithm {self.algorithm} blocks {self.blocks}"


@dataclass(frozen=True)
class Timing:
    """One candidate at one size."""

    size: int
    candidate: Candidate
    took_us: float


@dataclass(frozen=True)
class Winners:
    """What won in one run: by range of sizes, the words of the fastest."""

    operation: str
    kind: str
    mode: str
    ranges: tuple[tuple[int, int, str], ...]
    place: Place = Place()


Sides = dict[str, Candidate]


def kind_of(dtype: str) -> str:
    return "float" if DTYPES[dtype].is_floating_point else "integer"


def measure(effort: Effort, progress: Report, note: Report) -> list[Winners]:
    """Runs everything on processes of its own. Raises BenchError."""
    effort.check()
    # An older tuning must not choose for the processes that measure.
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
    """By blocks, a tuning file that asks for regions at any size."""
    if run.place.tensors == "plain" or run.operation not in _ON_REGIONS:
        yield {}
        return
    with TemporaryDirectory() as folder:
        made = {}
        for blocks in (run.place.within, *effort.blocks_of(run.place)):
            path = Path(folder) / f"{blocks}.txt"
            always = ((0, LARGEST, Candidate(ON_REGION, blocks).words),)
            winner = Winners(run.operation, "any", "any", always, Place("registered"))
            path.write_text("\n".join(["torchcomms tuning 1", *lines(effort, [winner]), ""]))
            made[blocks] = str(path)
        yield made


def timing_of(asked: Candidate, point: Point) -> Timing | None:
    """None where another algorithm ran in its place, which could not do that size."""
    if point.correct is False:
        raise BenchError(
            f"{point.op} by {asked.algorithm} gave wrong values at {point.bytes} bytes"
        )
    if asked.algorithm == "kernels":  # the built-in choice, whoever that is
        asked = Candidate("nccl", 0) if point.algorithm == "nccl" else asked
    elif asked.algorithm not in (point.algorithm, ON_REGION):  # what is on regions says nothing
        return None
    return Timing(point.bytes, asked, point.p50_us)


def ranges(timings: Sequence[Timing]) -> tuple[tuple[int, int, str], ...]:
    """First and last size, and who is the fastest; each measured size begins its own range.

    What won at the size before, or else is the built-in choice, which comes first, is replaced only
    by what is clearly faster.
    """
    found: list[tuple[int, int, str]] = []
    favourite: Candidate | None = None
    by_size = {size: [t for t in timings if t.size == size] for size in {t.size for t in timings}}
    for size in sorted(by_size):
        at_size = by_size[size]
        best = min(at_size, key=lambda timing: timing.took_us)
        kept = next((t for t in at_size if t.candidate == favourite), at_size[0])
        favourite = kept.candidate if kept.took_us * CLEARLY <= best.took_us else best.candidate
        if found and found[-1][2] == favourite.words:
            continue
        if found:
            found[-1] = (found[-1][0], size - 1, found[-1][2])
        found.append((size if found else 0, LARGEST, favourite.words))
    return tuple(found)


def lines(effort: Effort, winners: Sequence[Winners]) -> list[str]:
    """Of a tuning file. What won in both modes alike has one line for them."""
    made = []
    place = f"gpu {effort.gpu()} ranks {effort.ranks}..{effort.ranks}"
    for run in winners:
        facts = (run.operation, run.kind, run.place)
        same = [w for w in winners if (w.operation, w.kind, w.place) == facts]
        is_any = len(same) == len(MODES) and len({w.ranges for w in same}) == 1
        if is_any and run is not same[0]:
            continue
        mode = "any" if is_any else run.mode
        made += [
            f"kernel {run.operation} {place} bytes {first}..{last} kind {run.kind} mode {mode} "
            f"{words}{run.place.words}"
            for first, last, words in run.ranges
        ]
    return made


def merged(old: str, effort: Effort, new: Sequence[str]) -> str:
    """`old`, a tuning's text or "", with these lines instead of those about the same."""
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
