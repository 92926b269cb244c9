"""`./dev test --changed`: which tests a change concerns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

from devtool.changed import BACKENDS_OF, EVERYTHING, select  # noqa: E402 (the path first)
from devtool.rooms import rooms  # noqa: E402

ROOMS = rooms()
TESTS = {
    "tests/conftest.py": "",
    "tests/harness/world.py": "",
    "tests/python/test_soak.py": "from torchcomms.soak import run",
    "tests/python/test_bench.py": "from torchcomms import bench",
    "tests/python/test_tune.py": "from torchcomms.tuner import tune",
    "tests/python/test_examples.py": "train_digits",
    "tests/tools/test_tidy.py": "import tidy",
}
PACKAGE = {
    "python/torchcomms/soak/run.py": "import torch",
    "python/torchcomms/bench/plan.py": "import torch",
    "python/torchcomms/tuner/tune.py": "from torchcomms.bench import plan",
}


def chosen(*files):
    return select(files, ROOMS, TESTS, PACKAGE)


def test_nothing_changed_is_nothing_to_run():
    assert chosen().is_empty
    assert chosen("LICENSE", ".gitignore").is_empty


def test_a_source_concerns_its_room_and_those_above():
    found = chosen("src/transport/shm/frame_ring.cpp")
    assert {"test_transport_shm", "test_ctran_engine", "test_ctran_window"} <= {*found.cpp}
    assert "test_transport_tcp" not in found.cpp
    assert "test_base" not in found.cpp
    assert found.python is None
    assert found.backends == ("ctran",)


def test_arrows_are_followed_to_their_ends():
    assert (
        "test_ctran_window" in chosen("src/monitor/monitor_message.cpp").cpp
    )  # through ctran/engine


def test_what_all_backends_run_on_concerns_all_worlds():
    for path in ("src/core/comm/comm.cpp", "src/base/os/log.cpp", "src/bindings/bind.cpp"):
        assert chosen(path).backends is None, path
        assert chosen(path).python is None, path


def test_one_backend_concerns_its_worlds_alone():
    assert chosen("src/backends/gloo/connection_state.cpp").backends == ("gloo",)
    assert chosen("src/backends/nccl/x.cpp").backends == (
        "ctran", "nccl", "nccl-lazy", "ncclx", "rccl", "rcclx", "xccl",
    )  # fmt: skip


def test_a_cpp_test_concerns_itself():
    found = chosen("tests/cpp/transport/shm/frame_ring_test.cpp")
    assert found.cpp == ("test_transport_shm",)
    assert found.python == ()


def test_a_python_test_concerns_itself():
    assert chosen("tests/python/test_soak.py").python == ("tests/python/test_soak.py",)
    assert chosen("tests/python/test_soak.py").cpp == ()


def test_a_part_of_the_package_concerns_the_tests_of_all_that_import_it():
    assert chosen("python/torchcomms/bench/plan.py").python == (
        "tests/python/test_bench.py", "tests/python/test_tune.py",
    )  # fmt: skip
    assert chosen("python/torchcomms/soak/run.py").python == ("tests/python/test_soak.py",)


def test_pages_examples_and_tools_have_their_tests():
    for page in ("docs/index.md", "docs/reports/kernels.svg", "HACKING.md", "mkdocs.yml"):
        assert chosen(page).python == ("tests/docs",)
    assert chosen("examples/train_digits.py").python == ("tests/python/test_examples.py",)
    assert chosen("tools/tidy.py").python == ("tests/tools/test_tidy.py",)


@pytest.mark.parametrize(
    "path",
    ["tests/conftest.py", "tests/harness/world.py", "tests/standin/api.cpp", "CMakeLists.txt",
     "cmake/Room.cmake", "python/torchcomms/_new_comm.py", "include/torchcomms/comm.hpp",
     "tools/devtool/build.py.in", "what/nobody/knows"],
)  # fmt: skip
def test_what_no_rule_knows_concerns_everything(path):
    assert chosen("tests/python/test_soak.py", path) == EVERYTHING


def test_every_room_of_a_backend_has_names():
    parts = {"backends/common", "backends/device_kernels"}
    folders = {f"backends/{path.name}" for path in (ROOT / "src" / "backends").iterdir()}
    assert folders - parts == {*BACKENDS_OF}
