"""What is run: a row each."""

from __future__ import annotations

import shutil
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
POINTS = ("points.jsonl", "bench.jsonl")  # what the two benchmarks measured
FEW_OF_SPEC = ("tests/spec/test_vendors.py", "tests/spec/test_barrier.py")  # of a dry run
SOAKS = ((1, "ctran"), (2, "ncclx"), (3, "ctran"))  # a seed, and who has it
# The kernels' own tests, and few of them where each access to memory is looked at.
NATIVE = """
library=$("$0" -c 'import os, torchcomms; print(os.path.dirname(torchcomms.__file__))')
exec "$@" --library "$library/libtorchcomms_kernels_cuda.so" check
"""
SANITIZED = ("shapes", "exchange", "regions", "device_alltoallv")
PYTEST = (
    sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider",
    "-p", "gpureport.each_test",
)  # fmt: skip
KERNEL_OPERATIONS = ("all_reduce", "all_gather_single", "reduce_scatter_single")


@dataclass(frozen=True)
class Suite:
    """A row of tests/harness/backends.py, by its label there."""

    label: str
    sizes: tuple[int, ...]

    @property
    def backend(self) -> str:
        return self.label.partition("-cuda")[0]


SUITES = (
    Suite("ctran-cuda", (2, 4)),
    Suite("ncclx-cuda", (2, 4)),
    Suite("nccl-cuda", (2, 4)),
    Suite("nccl-lazy-cuda", (2, 4)),
    Suite("ctran-cuda-hosts", (2,)),
)
# Without GPUs: the rows over libraries that stand in for the vendor's and the kernels'.
SUITES_OF_CPU = (Suite("nccl", (3,)), Suite("ncclx", (2,)), Suite("ctran-kernels", (2,)))


@dataclass(frozen=True)
class Machine:
    """What there is to run on. In a dry run everything is on the CPU, where ranks need no devices,
    over the libraries in `stand_ins`."""

    gpus: int
    stand_ins: Path | None = None
    parts_a_gpu: int = 1  # that may share one

    @property
    def is_dry(self) -> bool:
        return self.stand_ins is not None

    @property
    def device(self) -> str:
        return "cpu" if self.is_dry else "cuda"

    @property
    def suites(self) -> list[tuple[Suite, int]]:
        """Each with a number of ranks that the machine has."""
        all_suites = SUITES_OF_CPU if self.is_dry else SUITES
        return [
            (suite, size)
            for suite in all_suites
            for size in suite.sizes
            if self.is_dry or size <= self.gpus
        ]

    @property
    def ranks(self) -> int:
        """Of what has one world of all."""
        return 2 if self.is_dry else self.gpus

    @property
    def environment(self) -> dict[str, str]:
        common = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1"}
        if self.stand_ins is None:
            return common
        nccl = str(self.stand_ins / "libstand_in_nccl.so")
        return {
            **common, "TORCHCOMM_NCCL_LIBRARY": nccl, "TORCHCOMM_NCCLX_LIBRARY": nccl,
            "TORCHCOMM_KERNELS_LIBRARY": str(self.stand_ins / "libstand_in_kernels.so"),
        }  # fmt: skip


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


def parts(machine: Machine, build: Path, out: Path, soak_minutes: float = 0.0) -> Iterator[Part]:
    """In order of importance: what comes first is sure to be reached."""
    yield Part("build", "the package is there", ("sh", "-c", BUILD, sys.executable), 0.5)
    yield from benchmarks(machine, out)
    if machine.parts_a_gpu > 1:
        yield from serial(machine)
    if not machine.is_dry:
        yield from kernels(machine, build)
    if soak_minutes > 0:
        yield from soaks(machine, soak_minutes)
    for room in ("gpu", "nccl", "backends_nccl", "ctran_device"):
        program = build / f"test_{room}"
        yield Part(f"cpp-{room}", f"C++ tests of {room}", (str(program),), 0.1, needs=program)
    # The suites that find most come first, of all backends, and the long one last.
    for name, title, paths, share in (
        ("failures", "failures", ("tests/gpu/test_failures.py",), 0.12),
        ("graph", "graphs and streams", ("tests/gpu/test_graphs.py", "tests/gpu/test_streams.py"),
         0.12),
        ("windows", "windows", ("tests/gpu/test_windows.py",), 0.06),
        ("parallelism", "parallel training", ("tests/gpu/test_training.py",), 0.15),
        ("spec", "spec suite", ("tests/spec",), 0.2),
    ):  # fmt: skip
        for suite, size in machine.suites:
            world = f"{suite.label}-{size}"
            argv = (*PYTEST, *(FEW_OF_SPEC if machine.is_dry and name == "spec" else paths))
            gpus = 0 if machine.is_dry else size
            if machine.parts_a_gpu > 1:
                argv = (*argv, "-m", "not serial")
            yield Part(f"{name}-{world}", f"{title}: {world}", argv, share, gpus, world=world)


def serial(machine: Machine) -> Iterator[Part]:
    """The tests beside which nothing may run, where other tests run side by side."""
    for suite, size in machine.suites:
        world = f"{suite.label}-{size}"
        argv = (*PYTEST, "tests/gpu", "-m", "serial")
        title = f"what nothing may run beside: {world}"
        gpus = 0 if machine.is_dry else size
        yield Part(f"serial-{world}", title, argv, 0.1, gpus, alone=True, world=world)


def kernels(machine: Machine, build: Path) -> Iterator[Part]:
    program = build / "torchcomms_kernels_test"
    sanitizer = Path(shutil.which("compute-sanitizer") or "compute-sanitizer")
    for name, title, needs, argv, share in (
        ("kernels", "the kernels' own tests", program, (), 0.2),
        ("memcheck", f"{', '.join(SANITIZED)} of them under compute-sanitizer's memcheck",
         # What the driver refuses, such as a launch that is to be refused, is no wrong access.
         sanitizer, (str(sanitizer), "--report-api-errors", "no", "--error-exitcode", "1"), 0.3),
    ):  # fmt: skip
        suites = SANITIZED if argv else ()
        command = ("sh", "-c", NATIVE, sys.executable, *argv, str(program), *suites, "--quick")
        yield Part(name, title, command, share, machine.gpus, needs=needs)


def soaks(machine: Machine, minutes: float) -> Iterator[Part]:
    for seed, backend in SOAKS:
        yield Part(
            f"soak-{seed}", f"random operations on {backend} for {minutes:g} minutes, seed {seed}",
            (sys.executable, "-m", "torchcomms", "soak", "--backend", backend, "--device",
             machine.device, "--ranks", str(machine.ranks), "--minutes", str(minutes), "--seed",
             str(seed)),
            0.9, 0 if machine.is_dry else machine.gpus,
        )  # fmt: skip


def benchmarks(machine: Machine, out: Path) -> Iterator[Part]:
    python, ranks = sys.executable, str(machine.ranks)
    gpus = 0 if machine.is_dry else machine.gpus
    # In a dry run it is shown that it works, no more.
    few = ("--bytes", "4K", "--rounds", "2", "--starts", "1") if machine.is_dry else ()
    yield Part(
        "benchmarks", f"benchmarks.gpu, {ranks} ranks",
        (python, "-m", "benchmarks.gpu", "--device", machine.device, "--ranks", ranks,
         "--seconds", "0.05", "--json", str(out / POINTS[0]), "--markdown",
         str(out / "benchmarks.md"), *few),
        0.3, gpus, alone=True,
    )  # fmt: skip
    sides = "ctran,ncclx,ncclx@batch_invariant=true,nccl"
    yield Part(
        "bench", f"torchcomms bench, kernels beside NCCL, {ranks} ranks",
        (python, "-m", "torchcomms", "bench", *KERNEL_OPERATIONS, "--device", machine.device,
         "--ranks", ranks, "--json", str(out / POINTS[1]), "--compare", "--no-table",
         *(("--backend", sides, "--bytes", "4K", "--iterations", "3", "--rounds", "2")
           if machine.is_dry else
           ("--backend", f"{sides},c10d:nccl", "--bytes", "1K,64K,1M,16M", "--mode", "sync,graph",
            "--dtype", "bfloat16", "--seconds", "0.05"))),
        0.2, gpus, alone=True,
    )  # fmt: skip
    yield Part(
        "tune", f"torchcomms tune, {ranks} ranks",
        (python, "-m", "torchcomms", "tune", "all_reduce", "--ranks", ranks,
         "--output", str(out / "tuning.txt"), "--seconds", "0.02",
         *(("--device", "host", "--mode", "eager", "--bytes", "4K", "--blocks", "64",
            "--dtype", "float32")
           if machine.is_dry else ("--device", "cuda", "--bytes", "1K:64M:8"))),
        0.15, gpus, alone=True,
    )  # fmt: skip
