"""The USE_* build switches: read alike by CMake and by the wheel's metadata."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "build_backend"))

import switches  # noqa: E402 (the path comes first)

CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def entry_points(*defines: str, **environment: str) -> list[str]:
    assert CMAKE is not None, "cmake is in tools/requirements-dev.txt"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("USE_")}
    script = ROOT / "cmake" / "print_parts.cmake"
    done = subprocess.run(
        [CMAKE, *defines, "-P", script],
        env=clean | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split("\n")[:-1]


GLOO = "gloo = torchcomms._comms_gloo"


def test_fake_gloo_and_ctran_are_built_by_default() -> None:
    points = entry_points()
    assert points[:2] == ["[torchcomms.backends]", "fake = torchcomms._comms"]
    assert {GLOO, "ctran = torchcomms._comms_ctran"} <= set(points)


def test_torch_distributed_is_told_of_backends_that_are_built() -> None:
    ours = "ctran = torchcomms._c10d:ctran"
    points = entry_points()
    assert points.index("[torch.distributed.backends]") < points.index(ours)
    assert ours not in entry_points(USE_CTRAN="0")


@pytest.mark.parametrize("value", ["0", "OFF", "off", "no", "on", "TRUE", "2", "yes"])
def test_any_value_but_1_and_ON_turns_a_backend_off(value: str) -> None:
    assert GLOO not in entry_points(USE_GLOO=value)


@pytest.mark.parametrize("value", ["1", "ON"])
def test_1_and_ON_turn_a_backend_on(value: str) -> None:
    assert GLOO in entry_points(USE_GLOO=value)


def test_a_part_without_sources_has_no_entry_point() -> None:
    rooms = {path.name for path in (ROOT / "src" / "backends").iterdir() if any(path.glob("*.cpp"))}
    built = {point.split(" = ")[0] for point in entry_points(USE_NCCLX="1")}
    assert {"ncclx"} & built == {"ncclx"} & rooms


def test_vendors_libraries_have_a_switch_each() -> None:
    nccl = {"nccl = torchcomms._comms_nccl", "nccl-lazy = torchcomms._comms_nccl"}
    others = {f"{name} = torchcomms._comms_{name}" for name in ("rccl", "rcclx", "xccl")}
    default = set(entry_points())
    assert nccl <= default
    assert not others & default
    on = entry_points(USE_NCCL="0", USE_RCCL="1", USE_RCCLX="1", USE_XCCL="1")
    assert others <= set(on)
    assert not nccl & set(on)


def test_a_define_wins_over_the_environment() -> None:
    assert GLOO not in entry_points("-DUSE_GLOO=OFF", USE_GLOO="1")


@pytest.mark.parametrize(
    ("settings", "cmake_args"),
    [
        ({"cmake.define.USE_GLOO": "OFF"}, ""),
        ({"skbuild.cmake.define.USE_GLOO": "OFF"}, ""),
        ({"cmake.args": "-DUSE_GLOO=OFF;-DOTHER=1"}, ""),
        ({"cmake.args": ["-DUSE_GLOO:BOOL=OFF"]}, ""),
        (None, "-DOTHER=1 -DUSE_GLOO:BOOL=OFF"),
    ],
)
def test_switches_are_found_wherever_pip_passes_them(
    settings: dict[str, object] | None, cmake_args: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMAKE_ARGS", cmake_args)
    assert switches.collect(settings) == {"USE_GLOO": "OFF"}
