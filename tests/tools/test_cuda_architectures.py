"""TORCH_CUDA_ARCH_LIST, torch's own variable, as the build of GPU kernels reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def told(given: str, *defines: str) -> list[str]:
    assert CMAKE is not None, "cmake is in tools/requirements-dev.txt"
    done = subprocess.run(
        [CMAKE, *defines, "-P", ROOT / "cmake" / "CudaArchitectures.cmake"],
        env=os.environ | {"TORCH_CUDA_ARCH_LIST": given},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("given", "architectures"),
    [
        ("9.0", "90-real"),
        ("9.0;10.0+PTX", "90-real;100"),
        ("8.0 9.0a, 9.0a", "80-real;90a-real"),
    ],
)
def test_torchs_list_is_told_in_cmakes_words(given: str, architectures: str) -> None:
    assert told(given) == [architectures]


def test_what_is_left_out_of_it_is_told() -> None:
    lines = told("7.5 Hopper 9.0")
    assert lines[-1] == "90-real"
    assert [line.split("'")[1] for line in lines[:-1]] == ["7.5", "Hopper"]


def test_the_builds_own_option_comes_first() -> None:
    assert told("9.0", "-DTORCHCOMMS_CUDA_ARCHITECTURES=80-real") == ["80-real"]


@pytest.fixture
def nvcc(tmp_path: Path) -> Path:
    """As that of CUDA 13 lists what it compiles for: without the letters."""
    return program(tmp_path / "nvcc", "printf 'sm_80\\nsm_90\\n'")


def program(path: Path, does: str) -> Path:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return path


def test_what_nvcc_compiles_for_has_letters_it_does_not_list(nvcc: Path) -> None:
    assert told("9.0a", f"-DTC_NVCC={nvcc}") == ["90a-real"]
    lines = told("9.0a 10.0f", f"-DTC_NVCC={nvcc}")
    assert lines[-1] == "90a-real"
    assert "sm_100" in lines[0]


def test_a_list_of_which_nothing_can_be_had_leaves_this_machines_gpus(
    nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "nvidia-smi", "printf '9.0\\n9.0\\n'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert told("12.0 7.5", f"-DTC_NVCC={nvcc}")[-1] == "90-real"
