"""Tensors of a GPU on the backends for CPU tensors: they travel by way of host memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import BackendUnavailable, CommTimeout, ReduceOp, Unsupported

from tests.harness.backends import BACKENDS
from tests.harness.cases import Failures, check_context, refused
from tests.harness.operations import MESSAGES, ROOT, call, operations_for
from tests.harness.programs import forked

STAGED = ("gloo", "ctran")
ROWS = tuple(
    replace(row, device="cuda", variant="-staged")
    for row in BACKENDS
    if row.name in STAGED and not row.variant
)


@pytest.fixture(params=ROWS, ids=lambda row: row.label)
def staged(request, worlds):
    """Two ranks whose tensors are on a GPU, on one where there is but one."""
    if reason := request.param.missing():
        pytest.skip(reason)
    return worlds.get(request.param, 2)


class Recorder:
    """Makes the tensors of a call, and knows them afterwards."""

    def __init__(self, rank, name, device):
        self._generator = torch.Generator().manual_seed(1000 * rank + len(name))
        self._device, self.tensors = device, {}

    def __call__(self, slot, shape):
        values = torch.randint(0, 100, shape, generator=self._generator).float()
        self.tensors[slot] = values.to(self._device)
        return self.tensors[slot]

    def seen(self, name, rank):
        # What other ranks have after a reduce is theirs to scribble on.
        hidden = name == "reduce" and rank != ROOT
        return {} if hidden else {slot: t.cpu() for slot, t in self.tensors.items()}


def the_same_as_on_the_cpu(context):
    failures, comm = Failures(), context.comm
    plain = torchcomms.new_comm(
        context.backend, torch.device("cpu"), "plain", store=context.store("plain")
    )
    sent = []
    for name in operations_for(context):
        for async_op in (True,) if name in MESSAGES else (False, True):
            with failures.case(name, async_op):
                want = Recorder(context.rank, name, "cpu")
                got = Recorder(context.rank, name, "cuda")
                works = [call(plain, name, async_op, want), call(comm, name, async_op, got)]
                if name == "send":  # the receive is the next of all ranks
                    sent += works
                    continue
                for work in works:
                    work.wait()
                wanted, given = want.seen(name, context.rank), got.seen(name, context.rank)
                assert all(torch.equal(given[slot], wanted[slot]) for slot in wanted)
    for work in sent:
        work.wait()
    plain.finalize()
    return failures.texts


def test_every_operation_does_what_it_does_with_cpu_tensors(staged):
    check_context(staged, the_same_as_on_the_cpu)


def on_streams(context):
    failures, comm, size = Failures(), context.comm, context.size
    for async_op in (False, True):
        with failures.case("behind the producer, and before the consumer", async_op):
            tensor = torch.zeros(1 << 20, device="cuda")
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                torch.cuda._sleep(50_000_000)
                tensor.fill_(context.rank + 1)
                comm.all_reduce(tensor, ReduceOp.SUM, async_op).wait()
                doubled = tensor * 2
            side.synchronize()
            assert doubled.min() == doubled.max() == size * (size + 1)
    with failures.case("an asynchronous call returns while its producer runs"):
        tensor = torch.zeros(16, device="cuda")
        torch.cuda._sleep(500_000_000)
        done = torch.cuda.Event()
        tensor.fill_(1)
        done.record()
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        assert not done.query()
        assert not work.is_completed()
        work.wait()
        assert tensor.tolist() == [float(size)] * 16
    with failures.case("tensors that are dropped"):
        output = torch.zeros(size << 20, device="cuda")
        source = torch.full((1 << 20,), float(context.rank + 1), device="cuda")
        work = comm.all_gather_single(output, source, True)
        del source
        torch.full((1 << 20,), -1.0, device="cuda")  # takes its memory, if that was given back
        work.wait()
        for rank in range(size):
            part = output[rank << 20 : (rank + 1) << 20]
            assert part.min() == part.max() == rank + 1
    with failures.case("many at once"):
        tensors = [torch.full((1000 * i + 1,), 1.0, device="cuda") for i in range(20)]
        works = [comm.all_reduce(tensor, ReduceOp.SUM, True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        assert all(bool((tensor == size).all()) for tensor in tensors)
    return failures.texts


def test_operations_are_ordered_on_the_streams_that_are_current(staged):
    check_context(staged, on_streams)


def captured(context):
    failures, comm = Failures(), context.comm
    tensor = torch.ones(4, device="cuda")
    for async_op in (False, True):
        with failures.case(async_op):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph), refused(Unsupported, "capture", context.backend):
                comm.all_reduce(tensor, ReduceOp.SUM, async_op)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    with failures.case("after that"):
        assert tensor.tolist() == [float(context.size)] * 4
    return failures.texts


def test_a_capture_refuses_and_says_why(staged):
    check_context(staged, captured)


def late(context):
    failures = Failures()
    comm = context.new_comm("late", timeout=timedelta(seconds=60))
    tensor = torch.ones(4, device="cuda")
    for async_op in (False, True):
        if context.rank != 0:
            break
        with failures.case(async_op), refused((CommTimeout, RuntimeError)):
            comm.all_reduce(tensor, ReduceOp.SUM, async_op, timeout=timedelta(seconds=1)).wait()
        assert tensor.tolist() == [1.0] * 4
    context.meet("late")
    return failures.texts


def test_a_limit_that_passes_raises_and_leaves_the_tensor(staged):
    check_context(staged, late)


def described(context):
    failures, comm = Failures(), context.comm
    with failures.case("device"):
        device = comm.get_device()
        assert device == torch.device("cuda", context.rank % torch.cuda.device_count())
        assert comm.describe()["device"] == str(device)
    with failures.case("capabilities"):
        can = comm.describe()["capabilities"]
        assert can["staging"]
        assert not can["graph_capture"]
        assert set(can["devices"]) == {"cpu", "cuda"}
    with failures.case("class"):
        assert type(comm.get_backend_impl()).__name__ == f"TorchComm{context.backend.capitalize()}"
    with failures.case("split"):
        child = comm.split(list(range(context.size)), "child")
        assert child.get_device() == device
        tensor = torch.ones(4, device=device)
        child.all_reduce(tensor, ReduceOp.SUM, False)
        assert tensor.tolist() == [float(context.size)] * 4
        child.finalize()
    with failures.case("a communicator of the CPU"):
        plain = torchcomms.new_comm(
            context.backend, torch.device("cpu"), "of_cpu", store=context.store("of_cpu")
        )
        for place in ("cpu", device, "cpu"):
            tensor = torch.ones(4, device=place)
            plain.all_reduce(tensor, ReduceOp.SUM, True).wait()
            assert tensor.tolist() == [float(context.size)] * 4
        plain.finalize()
    return failures.texts


def test_a_staged_communicator_says_what_it_is(staged):
    check_context(staged, described)


@pytest.mark.parametrize("backend", STAGED)
def test_without_a_gpu_the_device_is_refused_before_anybody_is_met(backend):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with refused(BackendUnavailable, "runtime", "new_comm"):
        torchcomms.new_comm(backend, torch.device("cuda"), "nowhere")
    with refused(Unsupported, "meta", backend):
        torchcomms.new_comm(backend, torch.device("meta"), "nowhere")


@pytest.mark.parametrize("backend", STAGED)
def test_cpu_tensors_touch_no_gpu_runtime(backend):
    forked(
        """
        import sys, torch, torchcomms
        from torch.distributed import HashStore

        def drivers():
            with open("/proc/self/maps") as maps:
                return {line.split()[-1] for line in maps if "libcuda.so" in line}

        before = drivers()
        comm = torchcomms.new_comm(
            sys.argv[1], torch.device("cpu"), "alone", store=HashStore(),
            hints={"persistent_store": "true"},
        )
        comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, True).wait()
        comm.finalize()
        assert drivers() == before
        """,
        backend,
        TORCHCOMM_RANK="0",
        TORCHCOMM_SIZE="1",
    ).expect_success()
