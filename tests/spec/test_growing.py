"""Hint workspace: kernels that get the memory for large collectives when these need it."""

from __future__ import annotations

import resource

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, check_context

pytestmark = pytest.mark.worlds(
    backends=("ctran", "ncclx"), sizes=(2, 3, 4), needs=("kernel_tuning",)
)

HINT = {"ctran::workspace": "growing"}
SMALL, LARGE = 100, 1 << 16  # elements; with the first part of the memory, and with the rest


def grown_bytes(comm) -> int:
    return comm.describe()["memory"]["kernels, later"]


def reduce_and_compare(failures, comm, numel):
    size = comm.get_size()
    values = torch.full((numel,), float(comm.get_rank() + 1), device=comm.get_device())
    comm.all_reduce(values, ReduceOp.SUM, False)
    gathered = torch.empty(size * numel, device=comm.get_device())
    comm.all_gather_single(gathered, values * (comm.get_rank() + 1), False)
    total = size * (size + 1) / 2
    ranks = torch.arange(1, size + 1, dtype=torch.float32, device="cpu")
    want = ranks.repeat_interleave(numel) * total
    with failures.case(comm.get_name(), numel):
        assert values.eq(total).all()
        assert torch.equal(gathered.cpu(), want)


def grows(context):
    failures = Failures()
    # One that asks is enough.
    comm = context.new_comm("growing", hints=HINT if context.rank == 0 else {})
    reduce_and_compare(failures, comm, SMALL)
    with failures.case("small ones"):
        assert grown_bytes(comm) == 0
    reduce_and_compare(failures, comm, LARGE)
    grown = grown_bytes(comm)
    with failures.case("a large one"):
        assert grown > 0
    reduce_and_compare(failures, comm, LARGE + 1)
    with failures.case("more large ones"):
        assert grown_bytes(comm) == grown
    comm.finalize()
    return failures.texts


def test_the_first_large_collective_brings_what_it_needs(world):
    check_context(world, grows)


def messages(context):
    failures = Failures()
    comm = context.new_comm("messages", hints=HINT)
    size, rank = comm.get_size(), comm.get_rank()
    inbox = torch.empty(LARGE, device=comm.get_device())
    batch = comm.batch_op_create()
    batch.send(torch.full_like(inbox, rank), (rank + 1) % size)
    batch.recv(inbox, (rank - 1) % size)
    batch.issue(False)
    with failures.case("values"):
        assert inbox.eq((rank - 1) % size).all()
    with failures.case("memory"):
        assert grown_bytes(comm) == 0
    comm.finalize()
    return failures.texts


def test_messages_have_what_they_need_from_the_beginning(world):
    check_context(world, messages)


def splits(context):
    failures = Failures()
    whole = context.new_comm("whole")
    child = whole.split(list(range(context.size)), "child", hints=HINT)
    reduce_and_compare(failures, child, SMALL)
    before = grown_bytes(child)
    reduce_and_compare(failures, child, LARGE)
    with failures.case("the split"):
        assert grown_bytes(child) > before
    with failures.case("its parent"):
        assert grown_bytes(whole) == 0
    child.finalize()
    whole.finalize()
    return failures.texts


def test_a_split_grows_by_itself(world):
    check_context(world, splits)


def further(context):
    failures = Failures()
    first = context.new_comm("first", hints={"ctran::workspace": "whole"})
    second = context.new_comm("second", hints={"ctran::workspace": "auto"})
    child = second.split(list(range(context.size)), "child")
    for comm, grows in ((first, False), (second, True), (child, True)):
        reduce_and_compare(failures, comm, SMALL)
        before = grown_bytes(comm)
        reduce_and_compare(failures, comm, LARGE)
        with failures.case(comm.get_name()):
            assert (grown_bytes(comm) > before) == grows
    for comm in (child, second, first):
        comm.finalize()
    return failures.texts


def test_communicators_beside_another_one_grow(world):
    check_context(world, further)


def cannot_grow(context):
    failures = Failures()
    comm = context.new_comm("poor", hints=HINT)
    reduce_and_compare(failures, comm, SMALL)
    # Memory of the stand-in's devices is in files.
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    if context.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, most[1]))
    context.meet("rank 1 has no memory")
    try:
        if context.backend == "ncclx":  # the library has memory of its own
            reduce_and_compare(failures, comm, LARGE)
        else:
            with failures.case("a large one"), pytest.raises(torchcomms.CommError) as caught:
                comm.all_reduce(torch.ones(LARGE, device=comm.get_device()), ReduceOp.SUM, False)
            with failures.case("what it says"):
                assert "full kernel workspace" in str(caught.value)
                assert "rank 1: " in str(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    reduce_and_compare(failures, comm, SMALL)
    with failures.case("memory"):
        assert grown_bytes(comm) == 0
    comm.finalize()
    return failures.texts


def test_where_a_rank_has_no_memory_left_the_rest_stays_usable(world):
    if world.backend.device != "cpu":
        pytest.skip("memory of GPUs cannot be kept from a rank")
    check_context(world, cannot_grow)


def early(context):
    """Rank 0 has begun the first large one, and grown, before another rank calls it; the others
    are in an operation of another communicator, and wait for rank 0 there."""
    failures = Failures()
    comm, other = context.new_comm("early", hints=HINT), context.new_comm("other")
    for each in (comm, other):
        reduce_and_compare(failures, each, SMALL)
    large, small = (torch.ones(count, device=comm.get_device()) for count in (LARGE, SMALL))

    def begin(which, tensor):
        return which.all_reduce(tensor, ReduceOp.SUM, True)

    works = [begin(other, small)] if context.rank != 0 else []
    context.meet("the others wait")
    if context.rank == 0:
        works = [begin(comm, large)]
        with failures.case("memory"):
            assert grown_bytes(comm) > 0
        works.append(begin(other, small))
    context.meet("rank 0 has begun both")
    if context.rank != 0:
        works.append(begin(comm, large))
    for work in works:
        work.wait()
    with failures.case("values"):
        assert large.eq(context.size).all()
        assert small.eq(context.size).all()
    for each in (comm, other):
        each.finalize()
    return failures.texts


def test_growing_waits_for_no_call_of_another_rank(world):
    check_context(world, early)


def first_large_one(comm, large):
    comm.all_reduce(large, ReduceOp.SUM, True).wait()
    comm.barrier(False)


def gone(context):
    """Rank 1 has ended the communicator when the others need the rest of their memory."""
    failures = Failures()
    comm = context.new_comm("gone", abort_process_on_timeout_or_error=False, hints=HINT)
    reduce_and_compare(failures, comm, SMALL)
    if context.rank == 1:
        comm.abort()
    context.meet("rank 1 has gone")
    if context.rank != 1:
        large = torch.ones(LARGE, device=comm.get_device())
        ended = (torchcomms.PeerFailed, torchcomms.Aborted)
        with failures.case("an error"), pytest.raises(ended):
            first_large_one(comm, large)
    context.meet("all know it")
    return failures.texts


def test_a_rank_that_has_gone_is_an_error(world):
    check_context(world, gone)


def refuses(context):
    failures = Failures()
    with (
        failures.case("the hint"),
        pytest.raises(ValueError, match="allowed are auto, whole and growing"),
    ):
        context.new_comm("refused", hints={"ctran::workspace": "small"})
    return failures.texts


def test_another_value_is_refused(world):
    check_context(world, refuses)
