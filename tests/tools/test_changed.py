"""`./dev test --changed` leaves no test out that a change concerns."""

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
    "tests/python/test_bench.py": "from torchcomms import bench",
    "tests/python/test_tune.py": "from torchcomms.tuner import tune",
}
PACKAGE = {
    "python/torchcomms/bench/plan.py": "import torch",
    "python/torchcomms/tuner/tune.py": "from torchcomms.bench import plan",
}


def chosen(*files):
    return select(files, ROOMS, TESTS, PACKAGE)


def test_a_source_concerns_its_room_and_those_above():
    found = chosen("src/transport/shm/frame_ring.cpp")
    assert {"test_transport_shm", "test_ctran_engine", "test_ctran_window"} <= {*found.cpp}
    assert not {"test_transport_tcp", "test_base"} & {*found.cpp}
    assert (found.python, found.backends) == (None, ("ctran",))


def test_what_all_backends_run_on_concerns_all_worlds():
    for path in ("src/core/comm/comm.cpp", "src/base/os/log.cpp", "src/bindings/bind.cpp"):
        assert (chosen(path).backends, chosen(path).python) == (None, None), path


def test_a_part_of_the_package_concerns_the_tests_of_all_that_import_it():
    assert chosen("python/torchcomms/bench/plan.py").python == (
        "tests/python/test_bench.py", "tests/python/test_tune.py",
    )  # fmt: skip
    assert chosen("docs/index.md").python == ("tests/docs",)


@pytest.mark.parametrize(
    "path",
    ["tests/conftest.py", "tests/harness/world.py", "tests/standin/api.cpp", "CMakeLists.txt",
     "python/torchcomms/_new_comm.py", "include/torchcomms/comm.hpp", "what/nobody/knows"],
)  # fmt: skip
def test_what_no_rule_knows_concerns_everything(path):
    assert chosen("tests/python/test_bench.py", path) == EVERYTHING


def test_every_room_of_a_backend_has_names():
    parts = {"backends/common", "backends/device_kernels"}
    folders = {f"backends/{path.name}" for path in (ROOT / "src" / "backends").iterdir()}
    assert folders - parts == {*BACKENDS_OF}
