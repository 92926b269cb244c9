"""What an operation on a GPU is ordered by: streams, not the host."""

from __future__ import annotations

import ctypes
import gc
import threading

import pytest
import torch
from torchcomms import ReduceOp

from tests.harness.cases import Failures, assert_alive, check, check_context

pytestmark = pytest.mark.worlds(device="cuda")
# So long is a stream busy that whoever is not ordered behind it is seen (0.1 s).
BUSY_CYCLES = 200_000_000
NUMEL = 1 << 20


def busy():
    torch.cuda._sleep(BUSY_CYCLES)


def marked():
    """An event behind everything on the current stream until now."""
    event = torch.cuda.Event()
    event.record()
    return event


def total(size):
    return size * (size + 1) / 2


class Gate:
    """Holds up what comes behind it on the current stream until it is opened.

    After OPENS_S it opens by itself, so that a host which waits for that is found, and not hung.
    """

    OPENS_S = 20.0

    def __init__(self):
        self._word = torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=True)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        at, at_least = ctypes.c_uint64(self._word.data_ptr()), 0
        wait = ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2
        assert wait(stream, at, ctypes.c_uint32(1), at_least) == 0
        self._timer = threading.Timer(self.OPENS_S, self.open)
        self._timer.start()

    def open(self):
        self._timer.cancel()
        self._word.fill_(1)


def behind_its_producer(comm):
    """The tensor is written late on the current stream; the call does not wait for that."""
    failures, rank, size = Failures(), comm.get_rank(), comm.get_size()
    for async_op in (False, True):
        tensor = torch.zeros(NUMEL)
        # What is there only once, like code that is brought to the device, may wait for the device.
        comm.all_reduce(tensor.fill_(0.0), ReduceOp.SUM, async_op).wait()
        comm.barrier(False)
        torch.cuda.synchronize()
        gate = Gate()
        tensor.fill_(rank + 1.0)
        written = marked()
        work = comm.all_reduce(tensor, ReduceOp.SUM, async_op)
        with failures.case("the host goes on", async_op):
            assert not written.query()
        work.wait()
        with failures.case("the host goes on after wait()", async_op):
            assert not written.query()
        gate.open()
        with failures.case("value", async_op):
            assert tensor.min().item() == tensor.max().item() == total(size)
    return failures.texts


def test_an_operation_is_behind_its_producer_and_blocks_no_host(world):
    check(world, behind_its_producer)


def on_side_streams(comm):
    """Issued on one stream, waited for on another, used on the second."""
    failures, rank, size = Failures(), comm.get_rank(), comm.get_size()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for async_op in (False, True):
        with torch.cuda.stream(first):
            busy()
            tensor = torch.full((NUMEL,), rank + 1.0)
            work = comm.all_reduce(tensor, ReduceOp.SUM, async_op)
        with torch.cuda.stream(second):
            work.wait()
            copy = tensor.clone()
        tensor.record_stream(second)
        second.synchronize()
        with failures.case(async_op):
            assert copy.min().item() == copy.max().item() == total(size)
    return failures.texts


def test_wait_orders_the_stream_that_is_current_then(world):
    check(world, on_side_streams)


def memory_is_kept(comm):
    """Tensors and works are dropped at once: memory given away early would be written over."""
    rank, size = comm.get_rank(), comm.get_size()
    output = torch.zeros(size, NUMEL)
    busy()
    comm.all_gather_single(output, torch.full((NUMEL,), float(rank)), True)
    fillers = [torch.full((NUMEL,), -1.0) for _ in range(8)]
    comm.barrier(False)
    gc.collect()
    low = [row.min().item() for row in output]
    high = [row.max().item() for row in output]
    return low, high, len(fillers)


def test_operations_keep_their_memory(world):
    want = [float(rank) for rank in range(world.size)]
    for low, high, _ in world.run(memory_is_kept):
        assert low == high == want


def on_the_current_stream(context):
    """By hint: an asynchronous operation is in the current stream, and needs no wait()."""
    failures = Failures()
    comm = context.new_comm(hints={"nccl::use_current_stream": "true"})
    for _ in range(5):
        busy()
        tensor = torch.full((NUMEL,), context.rank + 1.0)
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        with failures.case("without wait()"):
            assert tensor.max().item() == total(context.size)
        work.wait()
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("nccl", "nccl-lazy", "ncclx"))
def test_by_hint_operations_are_in_the_current_stream(world):
    check_context(world, on_the_current_stream)


def in_threads(context):
    """Each thread with its own communicator and stream."""
    failures, rank, size = Failures(), context.rank, context.size
    comms = [context.new_comm() for _ in range(3)]

    def run(index):
        torch.cuda.set_device(context.device)
        with torch.cuda.stream(torch.cuda.Stream()), failures.case("thread", index):
            for round_ in range(50):
                tensor = torch.full((1000 + index,), rank + 1.0, device=context.device)
                work = comms[index].all_reduce(tensor, ReduceOp.SUM, round_ % 2 == 0)
                work.wait()
                assert tensor.min().item() == tensor.max().item() == total(size)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(comms))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comm in comms:
        comm.finalize()
    return failures.texts


def test_communicators_of_several_threads_do_not_meet(world):
    check_context(world, in_threads)


def many_in_flight(comm):
    tensor = torch.ones(64)
    busy()
    works = [comm.all_reduce(tensor, ReduceOp.AVG, True) for _ in range(3000)]
    for work in reversed(works):
        work.wait()
    torch.cuda.synchronize()
    assert_alive(comm)
    return tensor.tolist(), all(work.is_completed() for work in works)


def test_thousands_may_be_in_flight(world):
    assert world.run(many_in_flight) == [([1.0] * 64, True)] * world.size


def blocked(comm):
    """wait_blocking() is the one that waits on the host."""
    tensor = torch.full((NUMEL,), comm.get_rank() + 1.0)
    busy()
    work = comm.all_reduce(tensor, ReduceOp.SUM, False)
    work.wait_blocking()
    return work.is_completed(), tensor.max().item()


def test_wait_blocking_waits_on_the_host(world):
    for done, value in world.run(blocked):
        assert done
        assert value == total(world.size)


def cycles(context):
    """Device memory comes back with the communicators."""
    free = []
    for cycle in range(6):
        comm = context.new_comm()
        comm.all_reduce(torch.ones(NUMEL), ReduceOp.SUM, False)
        torch.cuda.synchronize()
        comm.finalize()
        torch.cuda.empty_cache()
        context.meet(f"after cycle {cycle}")
        free.append(torch.cuda.mem_get_info()[0] >> 20)
    return free


@pytest.mark.serial  # what else runs on the device takes memory, too
def test_device_memory_comes_back_with_its_communicator(world):
    for free in world.run_context(cycles):  # the first one loads what stays
        assert free[1] - free[-1] < 64, f"MiB after each: {free}"


def leaves_the_current_device(context):
    """What a communicator opens on its device leaves the program on another one."""
    failures = Failures()
    other = (torch.cuda.current_device() + 1) % torch.cuda.device_count()
    with torch.cuda.device(other):
        child = context.comm.split(list(range(context.size)), "child")
        with failures.case("split"):
            assert torch.cuda.current_device() == other
        child.barrier(False)
        with failures.case("an operation"):
            assert torch.cuda.current_device() == other
        child.finalize()
    return failures.texts


def test_calls_leave_the_current_device_alone(world):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    check_context(world, leaves_the_current_device)
