"""Backends from outside the package carry DistributedDataParallel: in Python, and in C++."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import Finished, python, ranks

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = ROOT / "examples"
EXAMPLE = EXAMPLES / "cpp_backend"
LIMIT_S = 240.0

TRAIN = """
    import sys
    sys.path[:0] = {programs!r}, {examples!r}
    import torch, torchcomms
    from as_gloo_trains import expect_the_weights_of_gloo
    from torch.nn.parallel import DistributedDataParallel

    def trained(rank, size, **where):
        torch.manual_seed(rank)  # DDP makes them equal
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 16), torch.nn.Tanh(),
            torch.nn.Linear(16, 3),
        )
        model = DistributedDataParallel(model, bucket_cap_mb=0.002, **where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        generator = torch.Generator().manual_seed(3)
        for step in range(8):
            data = torch.randn(8 * size, 1, 8, 8, generator=generator)[rank::size]
            target = (data.mean((1, 2, 3)) > 0).long()
            loss = torch.nn.functional.cross_entropy(model(data), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    {register}
    comm = torchcomms.new_comm({name!r}, torch.device("cpu"), "train")
    assert comm.get_backend() == {name!r}
    expect_the_weights_of_gloo(comm, trained, {port})
"""


def train(name: str, register: str = "", **variables: str) -> None:
    program = TRAIN.format(
        name=name, register=register, port=free_port(), programs=str(PROGRAMS),
        examples=str(EXAMPLES),
    )  # fmt: skip
    for finished in ranks(program, 2, free_port(), **variables):
        assert finished.expect_success().out.strip().endswith("equal")


@pytest.mark.parametrize("manner", ["AtOnce", "Later"])
def test_ddp_trains_on_a_backend_in_python(manner: str) -> None:
    train(
        "in_python",
        "import python_store_backend as own; "
        f"torchcomms.register_backend('in_python', own.{manner})",
    )


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def cmake() -> str:
    beside = Path(sys.executable).with_name("cmake")
    if not beside.exists():
        pytest.skip("no cmake in this environment")
    return str(beside)


@pytest.fixture(scope="module")
def site(cmake: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the package installed, copied, as a wheel would be."""
    build = Path(torchcomms.__file__).parents[2]
    if not (build / "cmake_install.cmake").exists():
        pytest.skip("the package is not run from a build folder")
    folder = tmp_path_factory.mktemp("site")
    run(cmake, "--install", build, "--prefix", folder, "--component", "torchcomms")
    return folder


@pytest.fixture(scope="module")
def prefix(site: Path) -> str:
    """What the installed package tells CMake."""
    text = python(
        "import torchcomms; print(torchcomms.cmake_prefix_path())", PYTHONPATH=str(site)
    ).expect_success()
    found = text.out.strip()
    assert Path(found).is_relative_to(site)
    return found


def configure(cmake: str, folder: Path, prefix: str, *more: str) -> subprocess.CompletedProcess:
    ninja = Path(cmake).with_name("ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja.exists() else []
    command = [cmake, "-S", EXAMPLE, "-B", folder, *generator, f"-DCMAKE_PREFIX_PATH={prefix}",
               f"-DPython_EXECUTABLE={sys.executable}", *more]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.fixture(scope="module")
def library(cmake: str, prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's backend, built against the installed package alone."""
    folder = tmp_path_factory.mktemp("kv")
    done = configure(cmake, folder, prefix)
    assert done.returncode == 0, done.stderr
    run(cmake, "--build", folder)
    text = (folder / "build.ninja").read_text() if (folder / "build.ninja").exists() else ""
    assert str(ROOT / "include") not in text, "a header of the checkout was in reach"
    return folder / "libkv.so"


def test_ddp_trains_on_a_backend_in_cpp(library: Path, site: Path) -> None:
    train("kv", PYTHONPATH=str(site), TORCHCOMMS_BACKEND_LIB_PATH_KV=str(library))


def test_the_example_trains_on_it(library: Path, site: Path) -> None:
    program = f"""
        import runpy, sys
        sys.argv = ["train_ddp.py", "--backend", "kv"]
        runpy.run_path({str(EXAMPLES / "train_ddp.py")!r}, run_name="__main__")
    """
    variables = {"PYTHONPATH": str(site), "TORCHCOMMS_BACKEND_LIB_PATH_KV": str(library)}
    finished: list[Finished] = ranks(program, 2, free_port(), **variables)
    assert [one.expect_success().out for one in finished] == [
        f"rank {r} of 2 on kv: the loss is lower, the weights are those of every rank\n"
        for r in range(2)
    ]


def test_another_torch_is_refused_with_both_versions(
    cmake: str, prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '1.99.0+cpu'\n")
    done = configure(
        cmake, tmp_path / "build", prefix, f"-DTORCHCOMMS_TORCH_DIR={tmp_path / 'torch'}"
    )
    assert done.returncode != 0
    told = " ".join(done.stderr.split())
    minor = ".".join(torchcomms._build_info.TORCH_VERSION.split(".")[:2])
    assert f"was built for torch {minor}" in told
    assert "is 1.99" in told


def test_the_stage_of_a_checkout_can_be_found_too(cmake: str, tmp_path: Path) -> None:
    done = configure(cmake, tmp_path / "build", torchcomms.cmake_prefix_path())
    assert done.returncode == 0, done.stderr
    assert os.path.isdir(torchcomms.cmake_prefix_path())
