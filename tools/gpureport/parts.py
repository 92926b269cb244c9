"""What is run: a row each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What is there already is taken; else it is built with what is here, else with what pip fetches.
BUILD = """
"$0" -c 'import torchcomms' && exit
"$0" -m pip install --no-deps --no-build-isolation . || "$0" -m pip install .
"""
POINTS = "points.jsonl"  # what the benchmarks measured
BACKENDS = ("nccl", "nccl-lazy")


@dataclass(frozen=True)
class Machine:
    """What there is to run on. On the CPU ranks need no devices, and the library is a stand-in."""

    gpus: int
    library: str | None = None  # of host memory: then everything runs on the CPU

    @property
    def device(self) -> str:
        return "cuda" if self.library is None else "cpu"

    @property
    def sizes(self) -> list[int]:
        """Of the suites' worlds: two, and as many as they and the machine have."""
        return [size for size in (2, 4) if size <= self.gpus] if self.library is None else [3]

    @property
    def ranks(self) -> int:
        """Of what has one world of all."""
        return self.gpus if self.library is None else 2

    @property
    def environment(self) -> dict[str, str]:
        common = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1"}
        return (
            common if self.library is None else {**common, "TORCHCOMM_NCCL_LIBRARY": self.library}
        )


@dataclass(frozen=True)
class Part:
    """One command. `share`: of the whole time, at most."""

    name: str
    title: str
    argv: tuple[str, ...]
    share: float
    gpus: int = 0
    alone: bool = False  # it measures: nothing runs beside it
    world: str = ""  # of a suite's tests, of which each has a line
    needs: Path | None = None


def parts(machine: Machine, build: Path, out: Path) -> Iterator[Part]:
    """In order of importance: what comes first is sure to be reached."""
    python = sys.executable
    yield Part("build", "the package is there", ("sh", "-c", BUILD, python), 0.5)
    points = out / POINTS
    # On the CPU it is shown that it works, no more.
    spec = ("tests/spec",) if machine.library is None else ("tests/spec/test_vendors.py",)
    few = () if machine.library is None else ("--bytes", "4K", "--rounds", "2", "--starts", "1")
    yield Part(
        "benchmarks", f"benchmarks.gpu, {machine.ranks} ranks",
        (python, "-m", "benchmarks.gpu", "--device", machine.device, "--ranks", str(machine.ranks),
         "--seconds", "0.05", "--json", str(points), "--markdown",
         str(out / "benchmarks.md"), *few),
        0.4, machine.gpus if machine.library is None else 0, alone=True,
    )  # fmt: skip
    for room in ("gpu", "nccl", "backends_nccl"):
        program = build / f"test_{room}"
        yield Part(f"cpp-{room}", f"C++ tests of {room}", (str(program),), 0.1, needs=program)
    pytest = (
        python, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider",
        "-p", "gpureport.each_test",
    )  # fmt: skip
    variant = "-cuda" if machine.library is None else ""
    backends = BACKENDS if machine.library is None else BACKENDS[:1]
    for size in machine.sizes:
        for backend in backends:
            world = f"{backend}{variant}-{size}"
            if machine.library is None:
                yield Part(
                    f"gpu-{world}", f"streams, graphs, failures, training: {backend}, {size} GPUs",
                    (*pytest, "tests/gpu"), 0.3, size, world=world,
                )  # fmt: skip
            yield Part(
                f"spec-{world}", f"spec suite: {backend}, {size} ranks",
                (*pytest, *spec), 0.6, size if machine.library is None else 0, world=world,
            )  # fmt: skip
