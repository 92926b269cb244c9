"""What holds for several communicators of one process: they are independent of each other."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, check_context

COMMS = 16


def many(context):
    """All made, then all used at once, interleaved, then finalized in another order."""
    comms = [context.new_comm() for _ in range(COMMS)]
    tensors = [torch.full((10,), float(context.rank + i)) for i in range(COMMS)]
    works = [c.all_reduce(t, ReduceOp.SUM, True) for c, t in zip(comms, tensors, strict=True)]
    for work in reversed(works):
        work.wait()
    failures = Failures()
    for i, (comm, tensor) in enumerate(zip(comms, tensors, strict=True)):
        with failures.case("communicator", i):
            assert tensor.tolist() == [float(sum(r + i for r in range(context.size)))] * 10
            assert (comm.get_rank(), comm.get_size()) == (context.rank, context.size)
    with failures.case("names"):
        assert len({c.get_name() for c in comms}) == COMMS
    if "local_finalize" not in context.row.lacks:
        random.Random(context.rank).shuffle(comms)  # orders may differ by rank
    for comm in comms:
        comm.finalize()
    return failures.texts


def test_sixteen_communicators_work_at_once(world):
    check_context(world, many)


def interleaved(context):
    """Pending receives on one communicator do not hold up another one."""
    first, second = context.new_comm(), context.new_comm()
    rank, size = context.rank, context.size
    got = torch.zeros(1)
    receive = first.recv(got, (rank - 1) % size, True)
    for i in range(10):
        total = torch.tensor([float(i)])
        second.all_reduce(total, ReduceOp.SUM, False)
        assert total.item() == i * size
    first.send(torch.tensor([float(rank)]), (rank + 1) % size, True).wait()
    receive.wait()
    first.finalize()
    second.finalize()
    return got.item()


@pytest.mark.worlds(sizes=(2, 3, 4), needs=("unordered_messages",))
def test_a_waiting_receive_does_not_hold_up_another_communicator(world):
    size = world.size
    assert world.run_context(interleaved) == [float((r - 1) % size) for r in range(size)]


def opposite_orders(context):
    """Async operations of two communicators, started in opposite orders on different ranks."""
    comms = [context.new_comm(), context.new_comm()]
    order = (0, 1) if context.rank % 2 == 0 else (1, 0)
    tensors, works = {}, {}
    for _ in range(20):
        for i in order:
            tensors[i] = torch.full((100,), float(i + 1))
            works[i] = comms[i].all_reduce(tensors[i], ReduceOp.SUM, True)
        for i in reversed(order):
            works[i].wait()
    for comm in comms:
        comm.finalize()
    return [tensors[i][0].item() for i in (0, 1)]


@pytest.mark.worlds(needs=("different_orders",))
def test_communicators_may_be_used_in_different_orders_on_different_ranks(world):
    size = float(world.size)
    assert world.run_context(opposite_orders) == [[size, 2 * size]] * world.size


def threads(context, count, rounds):
    """One communicator a thread; the operations of all threads mix freely."""
    comms = [context.new_comm() for _ in range(count)]
    failures = [Failures() for _ in range(count)]

    def work(index):
        chosen = random.Random(index)  # the same on every rank: one order a communicator
        with failures[index].case("thread", index):
            for i in range(rounds):
                numel, async_op = chosen.choice((1, 100, 10000)), chosen.random() < 0.5
                tensor = torch.full((numel,), float(i + context.rank))
                pending = comms[index].all_reduce(tensor, ReduceOp.SUM, async_op)
                pending.wait()
                want = sum(i + r for r in range(context.size))
                assert tensor.min() == tensor.max() == want

    for thread in [context.thread(work, i) for i in range(count)]:
        thread.join()
    for comm in comms:
        comm.finalize()
    return [text for f in failures for text in f.texts]


def test_each_thread_may_use_its_own_communicator(world):
    check_context(world, threads, 4, 50)


@pytest.mark.slow
def test_threads_and_communicators_survive_many_operations(world):
    check_context(world, threads, 8, 1000)


def created_in_threads(context):
    """Created concurrently, each over a store of its own, and used when all are there: on a GPU an
    operation that waits for another rank may hold up what that one still makes."""
    comms, errors = {}, []

    def create(index):
        try:
            comms[index] = torchcomms.new_comm(
                context.backend,
                context.device,
                f"threaded_{index}",
                store=context.store(f"threaded_{index}", own_connection=True),
                timeout=timedelta(seconds=60),
            )
        except BaseException as error:
            errors.append(repr(error))

    for thread in [context.thread(create, i) for i in range(4)]:
        thread.join()
    assert not errors, errors
    context.meet("threaded")
    totals = []
    for i in range(4):
        tensor = torch.tensor([float(i)])
        comms[i].all_reduce(tensor, ReduceOp.SUM, False)
        totals.append(tensor.item())
        comms[i].finalize()
    return totals


@pytest.mark.worlds(needs=("created_at_once",))
def test_communicators_may_be_created_in_several_threads_at_once(world):
    """Each thread blocks for the other ranks: none may hold up the others' creation."""
    want = [float(i * world.size) for i in range(4)]
    assert world.run_context(created_in_threads) == [want] * world.size


def handed_over(context):
    """One communicator, used by one thread after another."""
    failures = Failures()

    def use(index):
        with failures.case("thread", index):
            tensor = torch.ones(3)
            context.comm.all_reduce(tensor, ReduceOp.SUM, False)
            assert tensor.tolist() == [float(context.size)] * 3

    for index in range(5):
        context.thread(use, index).join()
    return failures.texts


def test_a_communicator_may_pass_from_thread_to_thread(world):
    check_context(world, handed_over)


def without_stores(context, port):
    """Some with a store, some over one MASTER_PORT in turn, all alive together."""
    from tests.harness.environment import environment

    comms = []
    with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
        for i in range(6):
            more = {"store": context.store(f"mixed_{i}")} if i % 2 else {"store": None}
            comms.append(context.new_comm(f"mixed_{context.spec.prefix}_{i}", **more))
    totals = []
    for i, comm in enumerate(comms):
        tensor = torch.tensor([float(i)])
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        totals.append(tensor.item())
        comm.finalize()
    return totals


def test_communicators_with_and_without_a_store_coexist(world, free_port):
    want = [float(i * world.size) for i in range(6)]
    assert world.run_context(without_stores, free_port) == [want] * world.size


def abandoned(context):
    """One communicator in use while another one is dropped without finalize()."""
    keep, drop = context.new_comm(), context.new_comm()
    drop.barrier(False)
    del drop
    tensor = torch.ones(2)
    keep.all_reduce(tensor, ReduceOp.SUM, False)
    later = context.new_comm()
    later.all_reduce(tensor, ReduceOp.SUM, False)
    keep.finalize()
    later.finalize()
    return tensor.tolist()


def test_dropping_one_communicator_leaves_the_others_alone(world):
    want = [float(world.size) ** 2] * 2
    assert world.run_context(abandoned) == [want] * world.size
