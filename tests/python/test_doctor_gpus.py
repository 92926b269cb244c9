"""What the doctor says about GPUs and vendors' libraries: here, and of described machines."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch
from torchcomms.doctor import backends, environment, gpus, vendors
from torchcomms.doctor.exchange import Exchanges
from torchcomms.doctor.gpus import Nvml

from tests.harness.backends import NCCL

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def stand_in(monkeypatch) -> str:
    """Makes backend nccl work on CPU tensors; the library's file."""
    if NCCL.missing():
        pytest.skip(NCCL.missing())
    ((name, value),) = NCCL.environment.items()
    monkeypatch.setenv(name, value)
    return value


class Management:
    """NVML of a machine with driver 580.1 whose GPUs have the first `up` of 18 links."""

    def __init__(self, up: int = 18, knows: bool = True) -> None:
        self.up, self.knows, self.is_open = up, knows, False

    def nvmlInit_v2(self) -> int:
        self.is_open = True
        return 0

    def nvmlShutdown(self) -> int:
        self.is_open = False
        return 0

    def nvmlSystemGetDriverVersion(self, text, size) -> int:
        ctypes.memmove(text, b"580.1\0", min(6, size.value))
        return 0

    def nvmlDeviceGetHandleByUUID(self, name, gpu) -> int:
        assert name == b"GPU-some-uuid"
        return 0 if self.knows else 6

    def nvmlDeviceGetNvLinkState(self, gpu, link, state) -> int:
        state._obj.value = int(link.value < self.up)
        return 0


@pytest.fixture
def machine(monkeypatch):
    """A machine with some GPUs: `machine(count, apart={(0, 1)}, library=...)`."""

    def make(count: int, apart=frozenset(), library=None) -> None:
        properties = SimpleNamespace(
            name="H200", total_memory=139 << 30, major=9, minor=0, multi_processor_count=132,
            uuid="some-uuid",
        )  # fmt: skip
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setattr(
            torch.cuda, "can_device_access_peer", lambda i, j: i != j and (i, j) not in apart
        )
        nvml = None if library is None else Nvml.load(lambda name: library)
        monkeypatch.setattr(Nvml, "load", staticmethod(lambda: nvml))

    return make


def test_a_machine_without_gpus_is_told_in_one_line(machine):
    machine(0)
    section = gpus.look()
    assert section.rows == [{"what": "GPUs", "value": "none that torch sees"}]
    assert section.findings == []


def test_each_gpu_has_a_row_and_the_management_library_is_closed(machine):
    library = Management()
    machine(4, library=library)
    section = gpus.look()
    assert section.rows[1] == {
        "GPU": 1, "name": "H200", "memory": "139G", "architecture": "9.0", "processors": 132,
        "NVLinks": 18, "reaches": "0, 2, 3",
    }  # fmt: skip
    assert [finding.level for finding in section.findings] == ["ok", "ok"]
    assert "4, driver 580.1, torch's runtime" in section.findings[0].text
    assert not library.is_open


def test_gpus_that_do_not_reach_each_other_are_named(machine):
    machine(3, apart={(0, 1), (1, 0), (2, 1)})
    section = gpus.look()
    assert [row["reaches"] for row in section.rows] == ["2", "2", "0"]
    (warning,) = (f for f in section.findings if f.level == "warning")
    assert warning.text.startswith("not between GPUs 0 and 1, 2 and 1:")
    assert [row["NVLinks"] for row in section.rows] == [None] * 3


@pytest.mark.parametrize(
    ("library", "links"), [(Management(up=6), 6), (Management(knows=False), None)]
)
def test_links_are_counted_where_they_can_be(library, links):
    assert Nvml(library).links("some-uuid") == links


def test_no_management_library_is_no_error():
    def absent(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    assert Nvml.load(absent) is None


def test_a_vendors_library_is_shown_with_its_file_and_why(stand_in):
    rows = {row["backend"]: row for row in vendors.look().rows}
    assert rows["nccl"] == {
        "backend": "nccl", "version": "2.30.7", "why": "named by TORCHCOMM_NCCL_LIBRARY",
        "path": stand_in,
    }  # fmt: skip


def test_a_file_that_is_no_library_is_a_problem(monkeypatch):
    if "nccl" not in {row["backend"] for row in vendors.look().rows}:
        pytest.skip("backend nccl is not part of this build")
    monkeypatch.setenv("TORCHCOMM_NCCL_LIBRARY", "/nowhere/libnccl.so")
    (finding,) = vendors.look().findings
    assert finding.level == "problem"
    assert "/nowhere/libnccl.so, which does not load" in finding.text


def test_a_vendors_variable_is_known(stand_in):
    findings = environment.look().findings
    assert not [finding for finding in findings if "TORCHCOMM_NCCL_LIBRARY" in finding.subject]


def test_the_all_reduce_runs_on_a_library_for_host_memory(stand_in):
    (nccl,) = (each for each in backends.look()[1] if each.name == "nccl")
    assert nccl.device == "cpu"
    section = Exchanges([nccl], 60.0).finish()
    (row,) = section.rows
    assert (row["backend"], row["ranks"], row["correct"]) == ("nccl", 2, True)
    assert [finding.level for finding in section.findings] == ["ok"]


@needs_cuda
def test_the_gpus_of_this_machine_are_shown_and_sum():
    section = gpus.look()
    assert [row["GPU"] for row in section.rows] == list(range(torch.cuda.device_count()))
    (nccl,) = (each for each in backends.look()[1] if each.name == "nccl")
    (row,) = Exchanges([nccl], 60.0).finish().rows
    assert (row["ranks"], row["correct"]) == (torch.cuda.device_count(), True)
