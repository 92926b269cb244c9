"""Messages to windows, which their senders write straight to where they are wanted: hint
`<backend>::registered`.

Nothing is promised: a sender with the hint asks for the place, and the receiver answers. So each
side may have the hint or not, and its tensor in a window or elsewhere.
"""

from __future__ import annotations

import ctypes
import itertools
import os

import pytest
import torch
import torchcomms

from tests.harness.cases import Failures, assert_alive, check_context, finish, refused
from tests.harness.registered import BESIDE, LEAST_BYTES, Memory, hints_of

pytestmark = pytest.mark.worlds(backends=("ctran", "ncclx"), needs=("registered",), sizes=(2, 3))


def sample(context, sender, receiver, numel):
    values = torch.arange(numel, dtype=torch.int64) * 3 + 1000003 * sender + 10007 * receiver
    return (values % (1 << 24)).to(torch.float32).to(context.device)


def straight_so_far():
    """How many messages this process has written straight; None where nobody counts them."""
    path = os.environ.get("TORCHCOMM_KERNELS_LIBRARY")
    if path is None:
        return None
    count = getattr(ctypes.CDLL(path), "torchcomms_standin_kernels_straight", None)
    if count is None:
        return None
    count.restype = ctypes.c_int64
    return count()


class Expected:
    """That this rank writes so many messages straight in a block, where that is counted."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        self.before = straight_so_far()

    def __exit__(self, kind, *_):
        if kind is None and self.before is not None:
            assert straight_so_far() - self.before == self.count


def expected(context, count):
    """Of operations made of messages. Those of backend ncclx are NCCL's, which knows no windows."""
    return Expected(count if context.backend == "ctran" else 0)


def messages(context):
    """From rank 0 to the last one, with and without the hint on either side."""
    comm, last, failures = context.comm, context.size - 1, Failures()
    for extra in (-1, 0, 1001):
        numel = LEAST_BYTES // 4 + extra
        memory, elsewhere = Memory(context, numel), torch.zeros(numel, device=context.device)
        wanted = sample(context, 0, last, numel)
        for sends, receives, is_there, async_op in itertools.product((False, True), repeat=4):
            case = (extra, sends, receives, is_there, async_op)
            straight = sends and receives and is_there and extra >= 0
            with failures.case(*case), expected(context, straight and context.rank == 0):
                target = memory.tensor if is_there else elsewhere
                target.fill_(-2)
                comm.barrier(False)
                if context.rank == 0:
                    work = comm.send(
                        wanted, last, async_op, hints=hints_of(context) if sends else {}
                    )
                    finish(work, async_op)
                if context.rank == last:
                    work = comm.recv(
                        target, 0, async_op, hints=hints_of(context) if receives else {}
                    )
                    finish(work, async_op)
                    assert torch.equal(target, wanted)
                    if is_there:
                        memory.check(wanted)
                comm.barrier(False).wait_blocking()
        memory.window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_either_side_may_have_the_hint(world):
    check_context(world, messages)


def batches(context):
    """Of many messages to and from all others, small ones among them."""
    comm, rank, failures = context.comm, context.rank, Failures()
    others = [r for r in range(context.size) if r != rank]
    numel = LEAST_BYTES // 4
    sizes = (numel, 1000, numel + 7)
    memory = {peer: [Memory(context, size) for size in sizes] for peer in range(context.size)}
    options = torchcomms.BatchP2POptions()
    options.hints = hints_of(context)
    for turn, async_op in enumerate((False, True)):
        batch = comm.batch_op_create()
        for peer in others:
            for size, target in zip(sizes, memory[peer], strict=True):
                batch.recv(target.tensor, peer)
                batch.send(sample(context, rank, peer, size) + turn, peer)
        with failures.case(async_op), expected(context, 2 * len(others)):
            finish(batch.issue(async_op, options), async_op)
            for peer in others:
                for size, target in zip(sizes, memory[peer], strict=True):
                    target.check(sample(context, peer, rank, size) + turn)
            comm.barrier(False).wait_blocking()
    for all_of_one in memory.values():
        for one in all_of_one:
            one.window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_batches_are_right(world):
    check_context(world, batches)


def uneven(context):
    comm, rank, size, failures = context.comm, context.rank, context.size, Failures()
    least = LEAST_BYTES // 4

    def rows(sender, receiver):
        return least + 5 * sender + receiver if (sender + receiver) % 3 else 100

    sent = [rows(rank, r) for r in range(size)]
    received = [rows(r, rank) for r in range(size)]
    source = [sample(context, rank, r, sent[r]) for r in range(size)]
    wanted = [sample(context, r, rank, received[r]) for r in range(size)]
    # Windows are of all ranks, and their sizes each rank's own.
    memory = Memory(context, sum(received))
    parts = list(memory.tensor.split(received))
    long_ones = sum(sent[r] >= least for r in range(size) if r != rank)
    for async_op in (False, True):
        memory.tensor.fill_(-2)
        with failures.case("all_to_all_v_single", async_op), expected(context, long_ones):
            work = comm.all_to_all_v_single(
                memory.tensor,
                torch.cat(source),
                received,
                sent,
                async_op,
                hints=hints_of(context),
            )
            finish(work, async_op)
            memory.check(torch.cat(wanted))
            comm.barrier(False).wait_blocking()
        memory.tensor.fill_(-2)
        with failures.case("all_to_all", async_op), expected(context, long_ones):
            finish(comm.all_to_all(parts, source, async_op, hints=hints_of(context)), async_op)
            memory.check(torch.cat(wanted))
            comm.barrier(False).wait_blocking()
        with failures.case("without the hint", async_op), expected(context, 0):
            memory.tensor.fill_(-2)
            finish(comm.all_to_all(parts, source, async_op), async_op)
            memory.check(torch.cat(wanted))
            comm.barrier(False).wait_blocking()
    memory.window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_all_to_all_of_uneven_parts_is_right(world):
    check_context(world, uneven)


def of_the_communicator(context):
    """The communicator's hint holds for all that is made of messages, and a call's before it."""
    failures, size, rank = Failures(), context.size, context.rank
    comm = context.new_comm("straight", hints=hints_of(context))
    numel = LEAST_BYTES // 4
    window = comm.window_allocate(4 * numel * size)
    everything = window.get_tensor().view(torch.float32)
    parts = list(everything.split(numel))
    own = sample(context, rank, 0, numel)
    never = hints_of(context, "false")
    for hints, straight in ((None, size - 1), (never, 0)):
        everything.fill_(-2)
        with failures.case("all_gather", hints), expected(context, straight):
            comm.barrier(False)
            comm.all_gather(parts, own, False, hints=hints or {})
            for source, part in enumerate(parts):
                assert torch.equal(part, sample(context, source, 0, numel))
            comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()
    return failures.texts


def test_the_hint_of_the_communicator_holds(world):
    check_context(world, of_the_communicator)


def wrong_value(context):
    failures, comm = Failures(), context.comm
    if context.backend == "ncclx":
        return []  # whose messages are not asked
    hints = hints_of(context, "maybe")
    peer = (context.rank + 1) % context.size
    with failures.case("send"), refused(torchcomms.InvalidArgument, "registered", "maybe"):
        comm.send(torch.zeros(1, device=context.device), peer, False, hints=hints)
    assert_alive(comm)
    return failures.texts


def test_a_value_that_is_no_boolean_is_refused(world):
    check_context(world, wrong_value)


def by_counts(context):
    """Parts whose sizes the device knows; their hint is the communicator's."""
    failures, size, rank = Failures(), context.size, context.rank
    if context.backend != "ncclx":
        return []
    comm = context.new_comm("counted", hints=hints_of(context))
    numel = LEAST_BYTES // 4
    window = comm.window_allocate(4 * (numel * size + BESIDE))
    output = window.get_tensor().view(torch.float32)[rank : rank + numel * size + BESIDE // 2]
    for take in (numel, 100):
        counts = [take + 3 * r for r in range(size)]
        sent = torch.tensor([counts[rank]] * size, device=context.device)
        received = torch.tensor(counts, device=context.device)
        source = torch.cat([sample(context, rank, r, counts[rank]) for r in range(size)])
        output.fill_(-1)
        with failures.case(take), Expected(size - 1 if take == numel else 0):
            comm.get_backend_impl().device_alltoallv_single(output, source, received, sent, False)
            wanted = torch.cat([sample(context, r, rank, counts[r]) for r in range(size)])
            assert torch.equal(output[: len(wanted)], wanted)
            assert (output[len(wanted) :] == -1).all()
            comm.barrier(False).wait_blocking()
    window.tensor_deregister()
    comm.finalize()
    return failures.texts


def test_parts_by_counts_are_right(world):
    check_context(world, by_counts)
