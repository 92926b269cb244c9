"""The benchmark harness on devices, and beside a vendor's library alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
import torchcomms
from torchcomms import bench
from torchcomms._vendor import Library, RawCommunicator
from torchcomms.bench import measure
from torchcomms.bench.raw import Raw
from torchcomms.bench.timing import DeviceClock

from tests.harness.backends import NCCL

RAW_OPS = [
    "all_reduce",
    "all_gather_single",
    "reduce_scatter_single",
    "broadcast",
    "all_to_all_single",
]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def stand_in(monkeypatch):
    """Makes backend nccl work on CPU tensors."""
    if NCCL.missing():
        pytest.skip(NCCL.missing())
    for name, value in NCCL.environment.items():
        monkeypatch.setenv(name, value)


def plan(**changes) -> bench.Plan:
    given = {"ops": ["all_reduce"], "backends": ["fake"], "sizes": [8], "iterations": 4, **changes}
    return bench.Plan(**given)


# --- the vendor's library alone ------------------------------------------------------------------


def test_a_vendors_library_alone_is_measured_beside_the_backend_over_it(stand_in):
    notes = []
    both = plan(
        ops=[*RAW_OPS, "reduce"], backends=["nccl", "raw:nccl"], sizes=[4096], modes=["sync"]
    )
    points = list(bench.launch(both, 3, note=notes.append))
    assert {(p.op, p.backend) for p in points} == {
        *((op, backend) for op in RAW_OPS for backend in ("nccl", "raw:nccl")),
        ("reduce", "nccl"),
    }
    assert [(p.op, p.backend) for p in points if p.correct is not True] == []
    assert notes == ["raw:nccl has no reduce: not measured"]


def raw_ranks(size: int) -> list[RawCommunicator]:
    library = Library("nccl")
    made = library.make_id()
    with ThreadPoolExecutor(size) as ranks:
        return list(ranks.map(lambda rank: RawCommunicator(library, size, rank, made), range(size)))


def test_calls_in_a_row_from_cpp_are_that_many_calls(stand_in):
    comms = raw_ranks(2)
    buffers = [torch.ones(4, dtype=torch.float64) for _ in comms]

    def three_times(rank: int) -> float:
        address = buffers[rank].data_ptr()
        arguments = RawCommunicator.Arguments(address, address, 4, "float64", 0)
        return comms[rank].enqueue_many(RawCommunicator.Collective.all_reduce, arguments, 3)

    with ThreadPoolExecutor(2) as ranks:
        times_us = list(ranks.map(three_times, range(2)))
    assert all(time_us > 0 for time_us in times_us)
    assert all(torch.equal(each, torch.full((4,), 8.0, dtype=torch.float64)) for each in buffers)


def test_a_raw_call_that_cannot_be_is_refused(stand_in):
    with pytest.raises(torchcomms.InvalidArgument, match="the vendor's backend is 'nvcl', allowed"):
        Library("nvcl")
    with pytest.raises(torchcomms.InvalidArgument, match="the element type is 'complex64', allow"):
        RawCommunicator.Arguments(0, 0, 1, "complex64", 0)
    (comm,) = raw_ranks(1)
    nothing = RawCommunicator.Arguments(0, 0, 0, "float32", 0)
    with pytest.raises(torchcomms.InvalidArgument, match="times is 0, allowed is 1 or more"):
        comm.enqueue_many(comm.Collective.all_reduce, nothing, 0)
    comm.close()
    with pytest.raises(torchcomms.CommFinalized, match="is closed"):
        comm.enqueue(comm.Collective.all_reduce, nothing)


def test_a_library_says_which_file_it_is_and_why(stand_in):
    library = Library("nccl")
    assert library.path == NCCL.environment["TORCHCOMM_NCCL_LIBRARY"]
    assert library.how == "named by TORCHCOMM_NCCL_LIBRARY"
    assert library.version == "2.30.7"
    assert library.on_host_memory


def test_a_library_for_other_memory_is_refused(stand_in):
    world = bench.World(0, 1, dist.HashStore())
    with pytest.raises(bench.BenchError, match=r"works on CPU tensors, not on cuda:0"):
        Raw("raw:nccl", world, torch.device("cuda", 0))


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"modes": ["graph"]}, "mode graph needs device cuda, not cpu"),
        ({"modes": ["graph"], "device": "cuda", "ops": ["barrier"]}, "barrier cannot be captured"),
        ({"graph_operations": 0}, "graph operations: 0 is not at least 1"),
        (
            {"backends": ["raw:gloo"]},
            "unknown backend 'raw:gloo'; allowed vendor libraries: raw:nccl",
        ),
    ],
)
def test_a_plan_that_cannot_work_is_refused(changes, says):
    with pytest.raises(bench.BenchError) as caught:
        plan(**changes).check(1)
    assert says in str(caught.value)


def test_a_machine_without_gpus_is_told_before_processes_start(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(bench.BenchError, match="device cuda: torch sees no GPU here"):
        plan(device="cuda").check(1)


# --- a device's clock ----------------------------------------------------------------------------


class HostEvent:
    """An event whose device is the host."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter_ns()

    def elapsed_time(self, later: HostEvent) -> float:
        return (later.at - self.at) / 1e6


def host_device() -> DeviceClock:
    return DeviceClock(HostEvent, lambda: None)


@pytest.mark.parametrize(("call_us", "calls"), [(0, 50), (5, 50), (1000, 5), (90_000, 1)])
def test_a_batch_takes_some_milliseconds_and_never_fills_the_queue(call_us, calls):
    assert host_device().batch(call_us * 1000) == calls


def test_a_sample_is_a_batch_behind_one_call_that_aligns_the_ranks():
    done: list[str] = []
    clock = DeviceClock(HostEvent, lambda: done.append("synchronize"))
    sample = clock.sample(lambda: done.append("call"), 3)
    assert done == ["call", "synchronize", "call", "call", "call", "synchronize"]
    assert 0 <= sample.enqueue_ns <= sample.host_ns
    assert sample.took_ns > 0


def test_a_point_of_a_device_says_what_the_host_paid(monkeypatch):
    monkeypatch.setattr(measure, "clock_of", lambda device: host_device())
    (point,) = bench.run_here(plan(), bench.World(0, 1, dist.HashStore()))
    assert (point.iterations, point.batch) == (4, 50)
    assert 0 < point.enqueue_p50_us <= point.enqueue_p99_us
    assert 0 < point.host_p50_us <= point.host_p99_us
    assert bench.Point.from_json(point.to_json()) == point
    header, _, line = bench.points_table([point]).splitlines()
    assert header.split()[-4:] == ["host", "us", "enqueue", "us"]
    assert line.split()[9] == "200"  # calls


def test_lines_of_runs_without_a_device_clock_are_still_read():
    (point,) = bench.run_here(plan(), bench.World(0, 1, dist.HashStore()))
    new = ("batch", "host_p50_us", "host_p99_us", "enqueue_p50_us", "enqueue_p99_us")
    fields = {name: value for name, value in vars(point).items() if name not in new}
    assert bench.Point(**fields) == point


@needs_cuda
def test_graphs_are_measured_and_checked_beside_calls():
    ranks = min(torch.cuda.device_count(), 2)
    backends = ["nccl", "c10d:nccl", "raw:nccl"]
    both = plan(
        ops=RAW_OPS, backends=backends, sizes=[4096], modes=["sync", "graph"], device="cuda"
    )
    points = list(bench.launch(both, ranks))
    assert {(p.op, p.mode, p.backend) for p in points} == {
        (op, mode, backend) for op in RAW_OPS for mode in ("eager", "graph") for backend in backends
    }
    assert [(p.op, p.mode, p.backend) for p in points if p.correct is not True] == []
    assert all(p.batch % 50 == 0 for p in points if p.mode == "graph")
    assert all(0 < p.enqueue_p50_us <= p.host_p99_us for p in points)
