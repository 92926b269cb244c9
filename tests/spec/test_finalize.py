"""What finalize() means, and what is left of a communicator afterwards."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.backends import NCCL
from tests.harness.cases import Failures, check_context, refused
from tests.harness.operations import call, operations_for
from tests.harness.programs import ranks
from tests.harness.threads import threads_at_rest

anywhere = pytest.mark.worlds(data=False)
SOON_S = 10.0  # far below the default limit; on an idle machine it is less than one


def use_after(context):
    comm, failures = context.new_comm(), Failures()
    batch = comm.batch_op_create()
    batch.send(torch.zeros(2), (context.rank + 1) % context.size)
    comm.finalize()
    for name in operations_for(context):
        with failures.case(name), refused(RuntimeError, "not initialized"):
            call(comm, name, False)
    with failures.case("batch"), refused(RuntimeError, "not initialized"):
        batch.issue(False)
    with failures.case("set_timeout"), refused(torchcomms.CommFinalized):
        comm.set_timeout(1.0)
    with failures.case("set_hints"), refused(torchcomms.CommFinalized):
        comm.set_hints({})
    with failures.case("second finalize"), refused(RuntimeError, "already finalized"):
        comm.finalize()
    with failures.case("type"), refused(torchcomms.CommFinalized):
        comm.barrier(False)
    return failures.texts


@pytest.mark.worlds
def test_every_use_after_finalize_is_refused(world):
    check_context(world, use_after)


def ask_after(context):
    comm, failures = context.new_comm("asked_later"), Failures()
    comm.finalize()
    with failures.case("properties"):
        assert comm.get_name() == "asked_later"
        assert comm.get_backend() == context.backend
        assert comm.get_device() == context.device
        if context.row.vendor is None:
            assert (comm.get_rank(), comm.get_size()) == (context.rank, context.size)
            about = comm.describe()
            assert about["links"] == []
            assert about["algorithms"] == about["notes"] == {}
        else:
            with pytest.raises(torchcomms.CommFinalized):
                comm.get_rank()
        assert comm.get_options().timeout is not None
        assert comm.get_backend_impl() is not None
        assert comm.is_aborted() is False
    with failures.case("hooks"):
        comm.register_pre_hook(lambda name, op_id, args: None).remove()
    return failures.texts


@anywhere
def test_properties_still_answer_after_finalize(world):
    check_context(world, ask_after)


def in_flight(context):
    """finalize() is local and does not wait: works started before may be met afterwards."""
    comm, store = context.new_comm(), context.store("in_flight")
    tensor = torch.ones(3)
    if context.rank == 0:
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        comm.finalize()
        store.set("finalized", "yes")
    else:
        store.wait(["finalized"])
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        comm.finalize()
    work.wait()
    return tensor.tolist()


@pytest.mark.worlds(backends=("gloo", "ctran"), needs=("local_finalize",))
def test_finalize_lets_work_in_flight_complete(world):
    assert world.run_context(in_flight) == [[float(world.size)] * 3] * world.size


def fake_goes_on(context):
    comm, failures = context.new_comm(), Failures()
    comm.finalize()
    for name in operations_for(context):
        with failures.case(name):
            call(comm, name, False).wait()
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("fake",))
def test_fake_may_be_used_and_finalized_again(world):
    check_context(world, fake_goes_on)


def veto(context):
    """A raising pre-hook leaves the communicator as it was."""
    comm = context.new_comm()

    def refuse(name, _op_id, _args):
        if str(name).endswith(".finalize"):
            raise KeyError("not yet")

    handle = comm.register_pre_hook(refuse)
    with pytest.raises(KeyError, match="not yet"):
        comm.finalize()
    tensor = torch.ones(1)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    handle.remove()
    comm.finalize()
    return tensor.item()


def test_a_raising_pre_hook_leaves_the_communicator_usable(world):
    assert world.run_context(veto) == [float(world.size)] * world.size


def local(context):
    """Rank 0 finalizes while the others have not, and they go on among themselves."""
    comm, store = context.new_comm(), context.store("local_finalize")
    comm.barrier(False)
    if context.rank == 0:
        comm.finalize()
        store.set("gone", "yes")
        return None
    store.wait(["gone"])
    peers = list(range(1, context.size))
    got = torch.zeros(1)
    if len(peers) > 1:
        right = peers[peers.index(context.rank) - len(peers) + 1]
        left = peers[peers.index(context.rank) - 1]
        receive = comm.recv(got, left, True)
        comm.send(torch.tensor([float(context.rank)]), right, False)
        receive.wait()
        assert got.item() == left
    comm.finalize()
    return got.item()


@pytest.mark.worlds(sizes=(2, 3, 4), needs=("local_finalize",))
def test_finalize_is_local(world):
    world.run_context(local)


def left_too_early(context):
    """Rank 1 finalizes, and the others call a collective that it would have to be in."""
    comm, store = context.new_comm(), context.store("left_too_early")
    comm.barrier(False)
    if context.rank == 1:
        comm.finalize()
        store.set("gone", "yes")
    else:
        store.wait(["gone"])
        with pytest.raises(torchcomms.PeerFailed, match="rank 1 has closed") as raised:
            comm.all_reduce(torch.ones(3), ReduceOp.SUM, False)
        assert raised.value.peer == 1
        with pytest.raises(torchcomms.CommError):
            comm.barrier(False)
    context.meet("all have seen it")


@pytest.mark.worlds(sizes=(2,), backends=("gloo",))
def test_who_finalizes_before_the_others_are_done_is_named(world):
    world.run_context(left_too_early)


def left_alone(context):
    """Rank 0 leaves while an operation of its waits for ranks that never come to either."""
    comm, failures = context.new_comm(), Failures()
    comm.barrier(False)
    context.meet("left_alone/made")
    if context.rank == 0:
        work = comm.all_reduce(torch.ones(3), ReduceOp.SUM, True)
        began = time.monotonic()
        with failures.case("finalize"):
            comm.finalize()
        del work, comm
        gc.collect()
        with failures.case("soon"):
            assert time.monotonic() - began < SOON_S
    context.meet("left_alone/over")
    return failures.texts


@pytest.mark.worlds(backends=("ctran", "gloo"), sizes=(2, 3), needs=("local_finalize",))
def test_finalize_and_the_end_wait_for_nobody(world):
    check_context(world, left_alone)


LIMIT_S = 30.0  # of operations that wait in vain: not reached where their error is the right one
CLOSED = "has closed the communicator"
TOGETHER = pytest.mark.worlds(
    backends=("ctran", "gloo"), sizes=(2, 3), device="cpu", needs=("local_finalize",)
)


def left_behind(comm):
    """finalize() of a rank whose work may have failed by now, which nobody has met yet."""
    with contextlib.suppress(torchcomms.PeerFailed):
        comm.finalize()


def wait_in_thread(work):
    """How the wait of another thread ends: a function that says so."""
    ended = []

    def wait():
        try:
            work.wait()
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()

    def outcome():
        thread.join()
        for error in ended:
            raise error

    return outcome


def in_vain(failures, name, wait, peers=()):
    with failures.case(name):
        with pytest.raises(torchcomms.PeerFailed, match=CLOSED) as raised:
            wait()
        assert not peers or raised.value.peer in peers, raised.value


def waits_of(work, in_thread):
    return wait_in_thread(work) if in_thread else work.wait


def both_pending(context, in_thread):
    """Each waits for the next one, and all finalize."""
    comm, failures = context.new_comm(), Failures()
    following = (context.rank + 1) % context.size
    work = comm.recv(torch.zeros(4), following, True, timeout=LIMIT_S)
    wait = waits_of(work, in_thread)
    context.meet("both_pending/posted")
    left_behind(comm)
    in_vain(failures, "recv", wait, (following,))
    context.meet("both_pending/over")
    return failures.texts


@pytest.mark.parametrize("in_thread", [False, True], ids=["here", "in_thread"])
@TOGETHER
def test_receives_that_wait_for_each_other_end_when_all_finalize(world, in_thread):
    check_context(world, both_pending, in_thread)


def one_pending(context, in_thread):
    """Rank 1 finalizes while its receive of rank 0 is open, which waits for rank 1 in a receive."""
    comm, failures = context.new_comm(), Failures()
    if context.rank == 1:
        work = comm.recv(torch.zeros(4), 0, True, timeout=LIMIT_S)
        context.meet("one_pending/posted")
        left_behind(comm)
        context.meet("one_pending/seen")
        in_vain(failures, "recv of who left", work.wait, (0,))
    elif context.rank == 0:
        context.meet("one_pending/posted")
        work = comm.recv(torch.zeros(4), 1, True, timeout=LIMIT_S)
        in_vain(failures, "recv", waits_of(work, in_thread), (1,))
        left_behind(comm)
        context.meet("one_pending/seen")
    else:
        context.meet("one_pending/posted")
        context.meet("one_pending/seen")
        left_behind(comm)
    context.meet("one_pending/over")
    return failures.texts


@pytest.mark.parametrize("in_thread", [False, True], ids=["here", "in_thread"])
@TOGETHER
def test_a_receive_from_a_rank_that_finalizes_with_one_open_ends(world, in_thread):
    check_context(world, one_pending, in_thread)


def sent_before(context, numel):
    """Rank 1 sends, and finalizes with a receive open; rank 0 receives that, and no more."""
    comm, failures = context.new_comm(), Failures()
    if context.rank == 1:
        sent = comm.send(torch.arange(float(numel)), 0, True, timeout=LIMIT_S)
        vain = comm.recv(torch.zeros(4), 0, True, timeout=LIMIT_S)
        comm.finalize()
        context.meet("sent_before/left")
        with failures.case("send"):
            sent.wait()
        in_vain(failures, "recv of who left", vain.wait, (0,))
    else:
        first = torch.zeros(numel)
        context.meet("sent_before/left")
        if context.rank == 0:
            with failures.case("recv"):
                comm.recv(first, 1, False, timeout=LIMIT_S)
                assert torch.equal(first, torch.arange(float(numel)))
            second = comm.recv(torch.zeros(4), 1, True, timeout=LIMIT_S)
            in_vain(failures, "second recv", second.wait, (1,))
        left_behind(comm)
    context.meet("sent_before/over")
    return failures.texts


@pytest.mark.parametrize("numel", [4, 1 << 20])
@TOGETHER
def test_what_was_sent_before_finalize_arrives_and_no_more(world, numel):
    check_context(world, sent_before, numel)


def sends_pending(context):
    """Each has sent to the next one what that never receives."""
    comm, failures = context.new_comm(), Failures()
    following = (context.rank + 1) % context.size
    work = comm.send(torch.ones(1 << 20), following, True, timeout=LIMIT_S)
    context.meet("sends_pending/posted")
    left_behind(comm)
    in_vain(failures, "send", work.wait, (following,))
    context.meet("sends_pending/over")
    return failures.texts


@TOGETHER
def test_large_sends_that_nobody_receives_end_when_all_finalize(world):
    check_context(world, sends_pending)


def collective_pending(context, in_thread):
    """Rank 1 finalizes with a receive open, and the others are in a collective, or call one."""
    comm, failures = context.new_comm(), Failures()
    vain = None
    if context.rank == 1:
        vain = comm.recv(torch.zeros(4), 0, True, timeout=LIMIT_S)
    else:
        vain = comm.all_reduce(torch.ones(4), ReduceOp.SUM, True, timeout=LIMIT_S)
    wait = waits_of(vain, in_thread)
    context.meet("collective_pending/posted")
    if context.rank == 1:
        left_behind(comm)
        context.meet("collective_pending/seen")
        with failures.case("recv"), refused(torchcomms.PeerFailed, CLOSED):
            wait()
    else:
        in_vain(failures, "all_reduce", wait, (1,))
        left_behind(comm)
        context.meet("collective_pending/seen")
    context.meet("collective_pending/over")
    return failures.texts


@pytest.mark.parametrize("in_thread", [False, True], ids=["here", "in_thread"])
@TOGETHER
def test_a_collective_without_a_rank_that_finalizes_with_a_receive_open_ends(world, in_thread):
    check_context(world, collective_pending, in_thread)


def split_with_one_that_left(context):
    """Rank 1 finalizes with a receive open, and the others split with it."""
    comm, failures = context.new_comm(), Failures()
    if context.rank == 1:
        vain = comm.recv(torch.zeros(4), 0, True, timeout=LIMIT_S)
        left_behind(comm)
        context.meet("split_with_one_that_left/left")
        context.meet("split_with_one_that_left/seen")
        with failures.case("recv"), refused(torchcomms.PeerFailed, CLOSED):
            vain.wait()
    else:
        context.meet("split_with_one_that_left/left")
        everybody = list(range(context.size))
        # Another one may have given it up before.
        with failures.case("split"), refused(torchcomms.PeerFailed, CLOSED):
            comm.split(everybody, "child", timeout=LIMIT_S)
        left_behind(comm)
        context.meet("split_with_one_that_left/seen")
    return failures.texts


@TOGETHER
def test_a_split_with_a_rank_that_has_finalized_with_a_receive_open_ends(world):
    check_context(world, split_with_one_that_left)


def window_pending(context, in_thread):
    """Rank 1 finalizes with a receive open, and rank 0 waits for its signal."""
    comm, failures = context.new_comm(), Failures()
    window = comm.new_window(torch.zeros(4))
    vain = None
    if context.rank == 1:
        vain = comm.recv(torch.zeros(4), 0, True, timeout=LIMIT_S)
    elif context.rank == 0:
        vain = window.wait_signal(1, True, timeout=LIMIT_S)
    wait = waits_of(vain, in_thread) if vain is not None else None
    context.meet("window_pending/posted")
    if context.rank == 1:
        left_behind(comm)
    if context.rank == 0:
        in_vain(failures, "wait_signal", wait, (1,))
    context.meet("window_pending/seen")
    if context.rank != 1:
        left_behind(comm)
    else:
        with failures.case("recv"), refused(torchcomms.PeerFailed, CLOSED):
            wait()
    context.meet("window_pending/over")
    return failures.texts


@pytest.mark.parametrize("in_thread", [False, True], ids=["here", "in_thread"])
@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3), device="cpu", needs=("local_finalize",))
def test_a_wait_for_a_signal_of_a_rank_that_finalizes_with_a_receive_open_ends(world, in_thread):
    check_context(world, window_pending, in_thread)


# The library has its ranks leave together, and waits there for one that does not come.
LEAVE = """
    import os, time, torch, torchcomms

    comm = torchcomms.new_comm("nccl", torch.device("cpu"), "leave")
    comm.barrier(False)
    began = time.monotonic()
    try:
        comm.finalize()
    except torchcomms.CommTimeout as error:
        assert "finalize" in str(error), error
        assert "0.3 s, TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS" in str(error), error
        assert error.limit == 0.3, error.limit
        print("too late")
        assert time.monotonic() - began >= 0.28
    # Or another one was late before, and has ended it.
    assert time.monotonic() - began < 10  # the communicator's limit is 10 minutes
"""


@pytest.mark.skipif(NCCL.missing() is not None, reason=str(NCCL.missing()))
def test_where_the_library_waits_the_teardown_has_its_own_limit(free_port):
    variables = {
        **NCCL.environment,
        "TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS": "0.3",
        "TORCHCOMMS_STAND_IN": "hang=CommFinalize:1",
    }
    ended = ranks(LEAVE, 2, free_port, **variables)
    assert any("too late" in rank.expect_success().out for rank in ended)


def again_under_the_same_name(context):
    """A name is free again after finalize(), also on the very same store."""
    store, totals = context.store("same_name"), []
    for turn in range(3):
        comm = context.new_comm("same_name", store=store)
        tensor = torch.tensor([float(turn)])
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        totals.append(tensor.item())
        comm.finalize()
    return totals


def test_a_name_may_be_used_again_on_the_same_store(world):
    want = [float(turn * world.size) for turn in range(3)]
    assert world.run_context(again_under_the_same_name) == [want] * world.size


def footprint():
    gc.collect()
    with open("/proc/self/statm") as statm:
        rss = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"rss": rss, "threads": threads_at_rest(),
            "descriptors": len(os.listdir("/proc/self/fd"))}  # fmt: skip


def cycles(context, count):
    """Create, use, finalize, drop."""
    tensor = torch.ones(8)
    for _ in range(count):
        comm = context.new_comm()
        comm.all_reduce(tensor.fill_(1), ReduceOp.SUM, True).wait()
        comm.finalize()
        del comm
    return footprint()


# Far above what one takes beside tests of many ranks; alone it is 2 ms.
CYCLE_S = 0.3


def grown(world, warm_up, count):
    deadline = max(world.deadline_s, count * CYCLE_S)
    before = world.run_context(cycles, warm_up)
    after = world.run_context(cycles, count, deadline=deadline)
    for old, new in zip(before, after, strict=True):
        # The first count may include a thread and a descriptor of the warm-up that end late.
        assert new["threads"] <= old["threads"], f"{old} -> {new}"
        assert new["descriptors"] <= old["descriptors"], f"{old} -> {new}"
        assert new["rss"] - old["rss"] < 5 << 20, f"{old} -> {new}"


@pytest.mark.worlds(sizes=(1,), data=False)
def test_life_cycles_leave_memory_descriptors_and_threads_where_they_were(world):
    grown(world, 50, 200)


@pytest.mark.worlds(sizes=(2, 4), device="cpu", needs=("local_finalize",))
def test_life_cycles_of_several_ranks_leave_nothing_behind(world):
    grown(world, 20, 60)


@pytest.mark.slow
@pytest.mark.worlds(sizes=(1,), data=False)
def test_10000_life_cycles_leave_memory_descriptors_and_threads_where_they_were(world):
    for turn in range(10):
        grown(world, 100 if turn else 500, 1000)
