"""What to measure, and the check of it before any process starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

import torchcomms
from torchcomms import _comms
from torchcomms._arguments import MOST_RANKS_HERE, MOST_SECONDS_HERE
from torchcomms._dtype import dtype_name
from torchcomms.bench.errors import BenchError
from torchcomms.bench.exchange import operation

DTYPES = {
    dtype_name(dtype): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
    )
}
MODES = ("sync", "async", "graph")
BASELINE = "c10d:"  # prefix of a torch.distributed backend
RAW = "raw:"  # prefix of a vendor library without torchcomms
SYMMETRIC = "symm_mem:"  # prefix of a method by which torch reduces symmetric memory
WAYS = ("one_shot", "two_shot")
COMPUTATIONS = ("matmul",)

# Receives progress, or a sentence about a point that is not measured.
Report = Callable[[str], None]
COMMON_HINTS = ("batch_invariant",)  # hints of several backends, without prefix
VENDORS = ("nccl", "ncclx", "rccl", "rcclx", "xccl")


def parse_backend(backend: str) -> tuple[str, dict[str, str]]:
    """Parses a backend and its hints: "ctran@transport=tcp" to ("ctran", {"ctran::transport":
    "tcp"}).

    "nccl@:minCTAs=4" gives hint minCTAs without prefix. So do hints of several backends, as in
    "ctran@batch_invariant=true", and keys that contain "::".

    Raises: BenchError for a key without a value.
    """
    name, *settings = backend.split("@")
    hints = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        hint = key.removeprefix(":")
        if not (hint and equals):
            raise BenchError(f"backend {backend!r}: {setting!r} is not <knob>=<value>")
        is_whole = key != hint or hint in COMMON_HINTS or "::" in hint
        hints[hint if is_whole else f"{name}::{hint}"] = value
    return name, hints


MOST_ITERATIONS = 10**9


def check_seconds(seconds: float) -> None:
    """Raises BenchError for a duration in which nothing can be measured."""
    if not 0 < seconds <= MOST_SECONDS_HERE:
        raise BenchError(f"seconds: {seconds} is not above 0 and at most {MOST_SECONDS_HERE:g}")


@dataclass(frozen=True)
class Plan:
    """A run: every combination of the lists is one point, and the backends of a point take turns.

    `iterations` is the number of timed calls of a point. None takes as many as fit into `seconds`
    for each backend. The calls are divided into `rounds`. Each round visits all backends in an
    order shuffled from `seed`, so that drift of the machine affects all of them equally.

    Mode "graph" measures `graph_operations` calls in a row in a CUDA graph.

    `beside` names a computation that is measured alone and with each operation in flight.
    """

    ops: Sequence[str]
    backends: Sequence[str]
    sizes: Sequence[int]
    dtype: str = "float32"
    modes: Sequence[str] = ("sync",)
    device: str = "cpu"
    seconds: float = 0.3
    iterations: int | None = None
    rounds: int = 10
    seed: int = 1
    graph_operations: int = 50
    beside: str | None = None

    def check(self, ranks: int) -> None:
        """Raises BenchError for the first wrong value, with the allowed ones."""
        for label, values in (
            ("operation", self.ops),
            ("backend", self.backends),
            ("size", self.sizes),
            ("mode", self.modes),
        ):
            if not values:
                raise BenchError(f"no {label} was given")
            if len(set(values)) != len(values):
                raise BenchError(f"a {label} is given twice in {', '.join(map(str, values))}")
        self._check_numbers(ranks)
        for name in self.ops:
            if ranks < operation(name).min_ranks:
                raise BenchError(f"{name} needs at least {operation(name).min_ranks} ranks")
        for name in self.backends:
            _check_backend(name, ranks)
        _check_choice("dtype", self.dtype, DTYPES)
        for mode in self.modes:
            _check_choice("mode", mode, MODES)
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise BenchError(f"unknown device {self.device!r}; for example: cpu, cuda") from None
        self._check_graph()
        self._check_symmetric(device)
        self._check_beside(device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise BenchError(f"device {self.device}: torch sees no GPU here")

    def _check_numbers(self, ranks: int) -> None:
        for label, value in (
            ("ranks", ranks),
            ("rounds", self.rounds),
            ("bytes", min(self.sizes)),
            ("graph operations", self.graph_operations),
        ):
            if value < 1:
                raise BenchError(f"{label}: {value} is not at least 1")
        if self.iterations is not None and self.iterations < 1:
            raise BenchError(f"iterations: {self.iterations} is not at least 1")
        for label, number, most in (
            ("ranks", ranks, MOST_RANKS_HERE),
            ("rounds", self.rounds, MOST_ITERATIONS),
            ("iterations", self.iterations or 1, MOST_ITERATIONS),
        ):
            if number > most:
                raise BenchError(f"{label}: {number} is above {most}")
        check_seconds(self.seconds)

    def _check_graph(self) -> None:
        if "graph" not in self.modes:
            return
        if torch.device(self.device).type != "cuda":
            raise BenchError(f"mode graph needs device cuda, not {self.device}")
        for name in self.ops:
            if not operation(name).captured:
                raise BenchError(f"{name} cannot be captured: omit mode graph")

    def _check_symmetric(self, device: torch.device) -> None:
        for name in self.backends:
            if name.startswith(SYMMETRIC) and device.type != "cuda":
                raise BenchError(f"{name} needs device cuda, not {self.device}")

    def _check_beside(self, device: torch.device) -> None:
        if self.beside is None:
            return
        _check_choice("computation", self.beside, COMPUTATIONS)
        if device.type not in ("cpu", "cuda"):
            raise BenchError(f"--beside needs device cpu or cuda, not {self.device}")
        if device.type == "cpu" and list(self.modes) != ["async"]:
            raise BenchError(
                f"--beside on a CPU needs mode async only, not {', '.join(self.modes)}: "
                "other calls block the thread that computes"
            )

    def points(self) -> int:
        """The number of points of a complete run."""
        of_sizes = sum(1 if name == "barrier" else len(self.sizes) for name in self.ops)
        return of_sizes * len(self.modes) * len(self.backends)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        return Plan(**json.loads(text))


def _check_choice(label: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise BenchError(f"unknown {label} {value!r}; allowed: {', '.join(allowed)}")


def _check_backend(name: str, ranks: int) -> None:
    if name == "fake" and ranks > 1:
        raise BenchError(f"the backend fake always has 1 rank, not {ranks}: pass --ranks 1")
    if name.startswith(BASELINE):
        known = [each for each in dist.Backend.backend_list if each != "undefined"]
        if name.removeprefix(BASELINE) not in known:
            raise BenchError(
                f"unknown backend {name!r}: torch.distributed knows "
                + ", ".join(BASELINE + each for each in known)
            )
        return
    if name.startswith(RAW):
        if name.removeprefix(RAW) not in VENDORS:
            allowed = ", ".join(RAW + each for each in VENDORS)
            raise BenchError(f"unknown backend {name!r}; allowed vendor libraries: {allowed}")
        return
    if name.startswith(SYMMETRIC):
        if name.removeprefix(SYMMETRIC) not in WAYS:
            allowed = ", ".join(SYMMETRIC + each for each in WAYS)
            raise BenchError(f"unknown backend {name!r}; allowed for symmetric memory: {allowed}")
        return
    name, _ = parse_backend(name)
    if not (torchcomms.is_backend_built(name) or _comms._is_backend_registered(name)):
        built = ", ".join(torchcomms.built_backends())
        raise BenchError(
            f"unknown backend {name!r}; built here: {built}; "
            "c10d:<name> is torch.distributed, for example c10d:gloo; "
            "raw:<vendor> is a vendor library alone, for example raw:nccl; "
            "symm_mem:<way> is torch's symmetric memory, for example symm_mem:one_shot; "
            "<name>@<knob>=<value> sets its hint <name>::<knob>, <name>@:<hint>=<value> hint <hint>"
        )
