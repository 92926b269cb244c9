"""Windows on GPUs: whatever memory tensors are in, in graphs, and with limits."""

from __future__ import annotations

import copy
import time

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp, SignalCmpOp

from tests.gpu.test_failures import LIMIT_S, SOON_S, gpu_lives, own_comm
from tests.gpu.test_graphs import captured, kinds_of_nodes
from tests.harness.cases import Failures, assert_alive, check, check_context, refused

pytestmark = pytest.mark.worlds(
    device="cuda", backends=("ctran", "ncclx"), needs=("device_windows",)
)
NUMEL = 1 << 16


def around(comm):
    rank, size = comm.get_rank(), comm.get_size()
    return (rank + 1) % size, (rank - 1) % size


def memories(comm):
    """Tensors of zeros, by whose memory they are in."""
    yield "torch's", torch.zeros(NUMEL)
    pool = torch.cuda.MemPool(comm.get_mem_allocator())
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.zeros(NUMEL)
    yield "the allocator's", tensor
    del tensor
    yield "a part of torch's", torch.zeros(4 * NUMEL)[1001 : 1001 + NUMEL]


def puts(comm):
    failures, rank = Failures(), comm.get_rank()
    following, before = around(comm)
    for whose, mine in memories(comm):
        with failures.case(whose):
            window = comm.new_window(mine)
            for turn in range(20):
                data = torch.full((NUMEL - turn,), float(100 * turn + rank))
                window.put(data, following, turn, turn % 2 == 0)
                window.signal(following, False)
                window.wait_signal(before, False)
                assert bool((mine[turn:] == 100 * turn + before).all())
                comm.barrier(False)
            view = window.map_remote_tensor(following)
            assert view.device == mine.device
            assert bool((view[19:] == 1900 + rank).all())
            view.fill_(-rank)
            comm.barrier(False)
            assert bool((mine == -before).all())
            other = copy.deepcopy(window)
            assert bool((other.get_tensor() == -before).all())
            other.tensor_deregister()
            window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_peers_write_to_tensors_of_any_memory(world):
    check(world, puts)


def in_graphs(comm):
    failures, rank = Failures(), comm.get_rank()
    following, before = around(comm)
    window = comm.window_allocate(4 * NUMEL)
    mine = window.get_tensor().view(torch.float32)
    data, sums = torch.zeros(NUMEL), torch.zeros(NUMEL)

    def body():
        window.put(data, following, 0, False)
        window.signal(following, False)
        window.wait_signal(before, False)
        sums.add_(mine)
        comm.all_reduce(sums, ReduceOp.MAX, False)  # nobody writes before all have read

    graph = captured(body)
    want = 0.0
    for replay in range(100):
        data.fill_(float(replay + rank))
        graph.replay()
        want += replay + comm.get_size() - 1
    with failures.case("replays"):
        torch.cuda.synchronize()
        assert sums.min().item() == sums.max().item() == want, (sums.min(), sums.max(), want)
    del graph
    torch.cuda.synchronize()
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_replays_put_what_is_there_then(world):
    check(world, in_graphs)


def names_of_a_signal(comm):
    following, before = around(comm)
    window = comm.new_window(torch.zeros(NUMEL))
    window.signal(following, False)
    window.wait_signal(before, False)
    _, names = kinds_of_nodes(lambda: window.signal(following, False))  # never replayed
    window.tensor_deregister()
    return names


@pytest.mark.worlds(needs=("all_in_captures",))
def test_a_signal_in_a_graph_is_one_kernel_that_is_named_so(world):
    for names in world.run(names_of_a_signal):
        assert len([name for name in names if "ncclKernelSignal" in name]) == 1, names


def slots(comm):
    failures = Failures()
    following, _ = around(comm)
    window = comm.window_allocate(1024, signal_size=8)
    waits = window.wait_signal(3, 5, SignalCmpOp.GE, True)
    tensor = torch.ones(NUMEL)
    comm.all_reduce(tensor, ReduceOp.SUM, False)  # does not wait for it
    torch.cuda.current_stream().synchronize()
    with failures.case("not yet"):
        assert not waits.is_completed()
    comm.barrier(False)
    torch.cuda.current_stream().synchronize()
    window.signal(3, 7, following, False)
    waits.wait()
    torch.cuda.synchronize()
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_operations_go_on_while_a_wait_is_under_way(world):
    check(world, slots)


def nobody_signals(context):
    failures = Failures()
    comm = own_comm(context)
    window = comm.window_allocate(1024)
    began = time.monotonic()
    if context.rank == 0:
        window.wait_signal(1, False, timeout=LIMIT_S)
        torch.cuda.synchronize()  # returns, because the wait has been ended
        with failures.case("soon"):
            assert time.monotonic() - began < SOON_S
        with failures.case("the next call"), refused(torchcomms.CommTimeout, "wait_signal"):
            comm.barrier(False)
    context.meet("all have met it")
    if context.rank != 0:
        comm.abort()
    comm.finalize()
    with failures.case("afterwards"):
        gpu_lives(context)
    return failures.texts


def test_a_wait_has_a_limit(world):
    check_context(world, nobody_signals)
