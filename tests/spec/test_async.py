"""What async_op=True means on CPU: the call returns, the operation goes on, wait() meets it."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
import torch
from torchcomms import Aborted, PeerFailed, ReduceOp

from tests.harness.cases import Failures, assert_alive, check, check_context, settle_device
from tests.harness.operations import call, operations_for


def start_without_the_others(context):
    """Rank 0 starts a collective that cannot finish, and says so: only then do the others join."""
    comm, store, tensor = context.comm, context.store("async_start"), torch.ones(3)
    if context.rank == 0:
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        early = work.is_completed()
        store.set("started", "yes")
    else:
        store.wait(["started"])
        work, early = comm.all_reduce(tensor, ReduceOp.SUM, True), False
    work.wait()
    return early, tensor.tolist(), work.is_completed()


@pytest.mark.worlds(sizes=(2, 3, 4))
def test_an_async_call_returns_before_the_others_take_part(world):
    want = (False, [float(world.size)] * 3, True)
    assert world.run_context(start_without_the_others) == [want] * world.size


def reverse_waits(comm):
    rank, size = comm.get_rank(), comm.get_size()
    tensors = [torch.full((i * 37 + 1,), float(rank + i)) for i in range(50)]
    works = [comm.all_reduce(t, ReduceOp.SUM, True) for t in tensors]
    failures = Failures()
    for i in reversed(range(50)):
        with failures.case("operation", i):
            works[i].wait()
            want = sum(r + i for r in range(size))
            assert tensors[i].min() == tensors[i].max() == want
    return failures.texts


def test_many_operations_in_flight_may_be_waited_for_in_reverse(world):
    check(world, reverse_waits)


def mixed_in_flight(context):
    failures, works = Failures(), []
    for name in operations_for(context) * 3:
        with failures.case(name):
            works.append(call(context.comm, name, True))
    for work in reversed(works):
        work.wait()
    return failures.texts


def test_operations_of_every_kind_may_be_in_flight_together(world):
    check_context(world, mixed_in_flight)


def sync_between_async(comm):
    """A synchronous operation after asynchronous ones is later than all of them."""
    size = comm.get_size()
    tensor = torch.ones(1000)
    works = [comm.all_reduce(tensor, ReduceOp.SUM, True) for _ in range(5)]
    comm.all_reduce(tensor, ReduceOp.MAX, False)
    settle_device()
    done = [work.is_completed() for work in works]
    for work in works:
        work.wait()
    return done, tensor.min().item(), float(size) ** 5


def test_operations_of_one_communicator_run_in_the_order_of_their_calls(world):
    for done, got, want in world.run(sync_between_async):
        assert got == want
        assert done == [True] * 5


def drop_works(context):
    """Works and tensors are dropped at once; the operations still happen on every rank."""
    comm, failures = context.comm, Failures()
    for name in operations_for(context):
        with failures.case(name):
            call(comm, name, True)
    gc.collect()
    comm.barrier(False)
    assert_alive(comm)
    return failures.texts


def test_a_work_may_be_dropped_before_it_completes(world):
    for _ in range(5):
        check_context(world, drop_works)


def inputs_deleted(comm):
    """The operation holds what it reads: memory freed early would be overwritten by the filler."""
    rank, size = comm.get_rank(), comm.get_size()
    output = torch.zeros(size, 1 << 16)
    source = torch.full((1 << 16,), float(rank))
    work = comm.all_gather_single(output, source, True)
    alive = weakref.ref(source)
    del source
    fillers = [torch.full((1 << 16,), -1.0) for _ in range(20)]
    work.wait()
    return (
        [float(row.min()) for row in output],
        [float(row.max()) for row in output],
        len(fillers),
        alive() is None,
    )


def test_inputs_may_be_deleted_while_the_operation_runs(world):
    want = [float(r) for r in range(world.size)]
    for low, high, _, _ in world.run(inputs_deleted):
        assert low == high == want


def outlives_comm(context):
    """The work keeps its communicator: the variable may go first."""
    comm = context.new_comm()
    tensor = torch.ones(100)
    work = comm.all_reduce(tensor, ReduceOp.SUM, True)
    del comm
    gc.collect()
    work.wait()
    return tensor.tolist() == [float(context.size)] * 100


def test_a_work_keeps_its_communicator_alive(world):
    assert world.run_context(outlives_comm) == [True] * world.size


def posted_receives(comm):
    """Receives posted before the sends exist, on every pair at once."""
    rank, size = comm.get_rank(), comm.get_size()
    peers = [p for p in range(size) if p != rank]
    got = {p: torch.zeros(10) for p in peers}
    works = [comm.recv(got[p], p, True) for p in peers]
    comm.barrier(False)
    works += [comm.send(torch.full((10,), float(rank)), p, True) for p in peers]
    for work in works:
        work.wait()
    return {p: t[0].item() for p, t in got.items()}


@pytest.mark.worlds(sizes=(2, 3, 4), needs=("unordered_messages",))
def test_receives_may_be_posted_before_their_sends(world):
    for rank, got in enumerate(world.run(posted_receives)):
        assert got == {p: float(p) for p in range(world.size) if p != rank}


def alternating(comm):
    failures = Failures()
    for i, mode in zip(range(40), itertools.cycle((True, False, False, True)), strict=False):
        tensor = torch.full((5,), float(i))
        work = comm.all_reduce(tensor, ReduceOp.SUM, mode)
        if mode:
            work.wait()
        with failures.case(i):
            assert tensor.tolist() == [float(i * comm.get_size())] * 5
    return failures.texts


def test_modes_may_alternate(world):
    check(world, alternating)


def drop_under_way(context):
    """Rank 1 aborts what the others have let go of, with an operation that waits for it."""
    failures = Failures()
    comm = context.new_comm("dropped", abort_process_on_timeout_or_error=False)
    tensor = torch.ones(3)
    comm.all_reduce(tensor, ReduceOp.SUM, False)  # the first one may wait for all to connect
    settle_device()
    if context.rank != 1:
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        del comm
        gc.collect()
    context.meet("the others have dropped it")
    if context.rank == 1:
        comm.abort()
        return failures.texts
    settle_device()
    with failures.case("the work"), pytest.raises((PeerFailed, Aborted)):
        work.wait()
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3, 4))
def test_what_is_under_way_in_a_dropped_communicator_hears_of_an_abort(world):
    if world.backend.aborts:
        check_context(world, drop_under_way)
