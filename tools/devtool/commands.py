"""The commands of `./dev`, each a list of steps."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Mapping

from . import build as building
from . import changed, oneccl
from . import site as documentation
from .elf import check_needed
from .machine import parallel_jobs, parallel_tests
from .paths import ROOT, Workspace
from .plan import Plan
from .shell import Failure, Steps, exclusive, run_visibly, say
from .system import ensure_clang

NO_TESTS_COLLECTED = 5  # pytest's exit status
PAIRS_SEED = "1"  # of the cases that `./dev test` runs; `--pairs 0` runs all of them
# Seconds that the parts of the demonstration may take; a run here replaces them by its own.
DEMO_S = {"packages and torch": 60, "build": 370, "training": 30, "benchmark": 10}
DEMO_MACHINE = "a first run on a bare machine with 2 cores"
# What the C++ tests do in `./dev check`, instead of a few seconds' worth: of stress, and of links
# with faults over TCP.
LONG = {"TC_TEST_ROUNDS": "600", "TC_TEST_FAULT_PLANS": "1000"}


def setup(workspace: Workspace, _rest: list[str]) -> int:
    building.set_up(workspace)
    building.set_up_checks()
    say(f"ready: {workspace.venv}")
    return 0


def build(workspace: Workspace, _rest: list[str]) -> int:
    building.build(workspace)
    say(f"ready: {workspace.python} -c 'import torchcomms'")
    return 0


def demo(workspace: Workspace, rest: list[str]) -> int:
    plan = Plan("demo", DEMO_S, DEMO_MACHINE)
    with plan.part("packages and torch"):
        building.set_up(workspace)
    with plan.part("build"):
        building.compile_and_stage(workspace, "package")
    env = {**workspace.environment(), "OMP_NUM_THREADS": "1"}
    torchrun = [workspace.python, "-m", "torch.distributed.run", "--standalone"]
    train = [*torchrun, "--nproc-per-node", 4, ROOT / "examples" / "train_digits.py", *rest]
    with plan.part("training"):
        run_visibly("demo", train, env=env)
    bench = [workspace.python, "-m", "torchcomms", "bench", "all_reduce"]
    with plan.part("benchmark"):
        run_visibly("bench", [*bench, "--backend", "ctran,gloo", "--ranks", 2], env=env)
    return 0


def docs(_workspace: Workspace, _rest: list[str]) -> int:
    documentation.build()
    say(f"ready: {documentation.SITE / 'index.html'}")
    return 0


def test(workspace: Workspace, rest: list[str]) -> int:
    building.build(workspace)
    steps = Steps()
    with steps.step("documentation site"):
        documentation.build()
    with steps.step("C++ tests"):
        run_ctest(workspace, workspace.build(), parallel_jobs())
    run_pytest(steps, workspace, "not slow", ["--pairs", PAIRS_SEED, *rest])
    return steps.finish()


def test_changed(workspace: Workspace, rest: list[str], since: str | None) -> int:
    """The tests that the files changed since a commit concern."""
    chosen = changed.selection(since or changed.default_commit(), say)
    if chosen.is_empty:
        say("no test to run")
        return 0
    building.build(workspace)
    steps = Steps()
    if chosen.python is None or "tests/docs" in chosen.python:
        with steps.step("documentation site"):
            documentation.build()
    if chosen.cpp != ():
        with steps.step("C++ tests"):
            run_ctest(workspace, workspace.build(), parallel_jobs(), only=chosen.cpp)
    if chosen.python != ():
        words = [] if chosen.backends is None else ["--backends", ",".join(chosen.backends)]
        words += ["--pairs", PAIRS_SEED, *rest, *(chosen.python or ())]
        run_pytest(steps, workspace, "not slow", words)
    return steps.finish()


def test_xccl(workspace: Workspace, rest: list[str]) -> int:
    """The spec suite on backend xccl over oneCCL itself, on CPU tensors."""
    building.build(workspace, "package")
    steps = Steps()
    with steps.step("xccl over oneCCL"):
        named = any(Path(ROOT, word.partition("::")[0]).exists() for word in rest)
        argv = [workspace.python, "-m", "pytest", *([] if named else ["tests/spec"]), *rest]
        argv += ["-k", "xccl-oneccl", "-m", "not slow", "-rs"]
        # One world at a time: oneCCL's workers take the cores there are.
        run_visibly("pytest", [*argv, "-n", "0"], env=oneccl.environment(workspace))
    return steps.finish()


def check(workspace: Workspace, _rest: list[str]) -> int:
    building.build(workspace)
    steps = Steps()
    with steps.step("tools/check"):
        tools = building.set_up_checks()
        building.build(tools)
        run_visibly(
            "tools/check", [tools.python, ROOT / "tools" / "check"], env=tools.environment()
        )
    with steps.step("libraries needed"):
        check_needed(workspace.stage / "torchcomms")
    for preset in ("asan", "tsan"):
        with steps.step(f"C++ tests, {preset}"), exclusive(workspace.build(preset).name):
            # One at a time: sanitizers slow everything, and the tests have limits to keep.
            run_ctest(workspace, building.compile_preset(workspace, preset), jobs=1)
    with steps.step("C++ tests"):
        run_ctest(workspace, workspace.build(), parallel_jobs(), LONG)
    with steps.step("GPU kernels"), exclusive(workspace.build("kernels").name):
        building.compile_preset(workspace, "kernels", "gpu_kernels")
    with steps.step("fuzzing"), exclusive(workspace.build("fuzz").name):
        folder = building.compile_preset(workspace, "fuzz", "fuzz", ensure_clang())
        run_ctest(workspace, folder, parallel_jobs())
    run_pytest(steps, workspace, "", [])
    return steps.finish()


def bench(workspace: Workspace, rest: list[str]) -> int:
    building.build(workspace, "package")
    argv = [str(workspace.python), "-m", "torchcomms", "bench", *rest]
    return subprocess.run(argv, cwd=ROOT, env=workspace.environment(), check=False).returncode


def shell(workspace: Workspace, rest: list[str]) -> int:
    building.build(workspace)
    words = rest[1:] if rest[:1] == ["--"] else rest
    argv = words or [os.environ.get("SHELL", "/bin/sh")]
    return subprocess.run(argv, env=workspace.environment(), check=False).returncode


def run_ctest(
    workspace: Workspace,
    folder: Path,
    jobs: int,
    variables: Mapping[str, str] | None = None,
    only: tuple[str, ...] | None = None,
) -> None:
    """`only`: names of tests, of which some may not be part of this build; None: all."""
    argv = [
        workspace.venv / "bin" / "ctest",
        "--test-dir",
        folder,
        "--output-on-failure",
        "--no-tests=error" if only is None else "--no-tests=ignore",
        "--parallel",
        jobs,
    ]
    if only is not None:
        argv += ["--tests-regex", f"^({'|'.join(only)})$"]
    env = {**workspace.environment(), **(variables or {})}
    run_visibly(f"C++ tests in {folder.name}", argv, env=env)


def run_pytest(steps: Steps, workspace: Workspace, marks: str, rest: list[str]) -> None:
    """Two passes: tests that may share the machine, in parallel; those that measure it, alone."""
    both = f"({marks}) and " if marks else ""
    passes = {
        "Python tests": [f"{both}not serial", "-n", str(parallel_tests()), "--dist", "loadfile"],
        "Python tests, one at a time": [f"{both}serial", "-n", "0"],
    }
    empty = 0
    for title, (expression, *parallel) in passes.items():
        with steps.step(title):
            argv = [str(workspace.python), "-m", "pytest", "-m", expression, "--durations=10"]
            argv += [*parallel, *rest]
            try:
                run_visibly(title, argv, env=workspace.environment())
            except Failure as failure:
                if not str(failure).endswith(f"status {NO_TESTS_COLLECTED}"):
                    raise
                empty += 1
    if empty == len(passes):
        with steps.step("tests found"):
            raise Failure("no Python test was selected")
