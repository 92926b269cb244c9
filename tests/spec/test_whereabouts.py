"""What is said when an operation fails: where every rank was, whatever it was doing."""

from __future__ import annotations

import ctypes
import os
import re
import time

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import check_context
from tests.harness.ports import free_port
from tests.harness.programs import ranks

several = pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4))
either = pytest.mark.worlds(backends=("ctran", "gloo"), sizes=(2, 3, 4))
LIMIT_S = 0.3
LATE_S = 5.0  # far below the default limit; on an idle machine it is some milliseconds


def raised_in_time(action):
    """The CommTimeout of `action`, which comes after its limit and soon after it."""
    began = time.monotonic()
    with pytest.raises(torchcomms.CommTimeout) as caught:
        action()
    took = time.monotonic() - began
    assert LIMIT_S * 0.95 <= took < LIMIT_S + LATE_S, took
    return caught.value


def assert_names_rank_1(error):
    """Rank 1 alone is behind, and answered; so did the others, if they had a core to run on."""
    text = str(error)
    behind = re.search(r"; rank 1 is 1 collective behind, since number (\d+);", text)
    assert behind, text
    number = int(behind[1])
    assert f"rank 1: in no collective, after barrier() as number {number - 1}" in text, text
    assert f"in all_reduce(float32, 1000 elements, SUM) as number {number} (4000 bytes)" in text
    if "did not answer" not in text:
        assert (error.peer, error.culprits) == (1, (1,)), text


def skips_one(context):
    """Rank 1 waits for something else, in Python."""
    comm, store = context.new_comm(), context.store("skips_one")
    comm.barrier(False)
    if context.rank == 1:
        store.wait(["over"])
    else:
        error = raised_in_time(
            lambda: comm.all_reduce(torch.ones(1000), ReduceOp.SUM, False, timeout=LIMIT_S)
        )
        assert_names_rank_1(error)
        if store.add("raised", 1) == context.size - 1:
            store.set("over", "yes")
    context.meet("skips_one")
    comm.finalize()
    return []


@either
def test_a_rank_that_skips_a_collective_is_named_with_where_all_are(world):
    check_context(world, skips_one)


def several_stay_out(context):
    """Ranks 1 and 3 of four come to none of it."""
    comm = context.new_comm()
    comm.barrier(False)
    if context.rank in (0, 2):
        error = raised_in_time(lambda: comm.barrier(False, timeout=LIMIT_S))
        text = str(error)
        if "did not answer" not in text:  # a busy machine has no core for them
            assert error.culprits == (1, 3), (error.culprits, text)
        assert (error.peer, error.limit) == (-1, LIMIT_S), (error.peer, error.limit)
        if context.backend == "ctran":
            assert error.seq > 0
    context.meet("several_stay_out")
    comm.finalize()
    return []


@pytest.mark.worlds(backends=("ctran", "gloo"), sizes=(4,), device="cpu")
def test_all_ranks_that_are_at_fault_are_culprits(world):
    check_context(world, several_stay_out)


def holds_the_gil(context, pipe):
    """No thread of Python can run on rank 1, and none of it is in a call."""
    comm, store = context.new_comm(), context.store("holds_the_gil")
    comm.barrier(False)
    if context.rank == 1:
        descriptor = ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY)  # until it is written to
        os.close(descriptor)
    else:
        error = raised_in_time(
            lambda: comm.all_reduce(torch.ones(1000), ReduceOp.SUM, False, timeout=LIMIT_S)
        )
        assert_names_rank_1(error)
        if store.add("raised", 1) == context.size - 1:
            os.close(os.open(pipe, os.O_WRONLY))
    context.meet("holds_the_gil")
    comm.finalize()
    return []


@either
def test_a_rank_that_holds_pythons_lock_answers_too(world, tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    check_context(world, holds_the_gil, pipe)


def late_message(context):
    comm, store = context.new_comm(), context.store("late_message")
    comm.barrier(False)
    if context.rank == 0:
        error = raised_in_time(lambda: comm.recv(torch.zeros(3), 1, False, timeout=LIMIT_S))
        assert "recv of 12 bytes from rank 1 did not finish" in str(error)
        assert "rank 0: in no collective" in str(error)
        assert "; in recv of 12 bytes from rank 1" in str(error)
        store.set("over", "yes")
    else:
        store.wait(["over"])
    context.meet("late_message")
    comm.finalize()
    return []


@several
def test_a_late_message_says_where_its_sender_is(world):
    check_context(world, late_message)


STOPPED = """
    import os, pathlib, signal, tempfile, time
    import torch, torchcomms
    from torchcomms import ReduceOp

    comm = torchcomms.new_comm("ctran", torch.device("cpu"), "stopped")
    rank, process = comm.get_rank(), torch.tensor([os.getpid()])
    comm.broadcast(process, 1, False)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        state = pathlib.Path(f"/proc/{process.item()}/stat")
        limit = time.monotonic() + 30
        while state.read_text().rpartition(") ")[2][0] != "T" and time.monotonic() < limit:
            os.sched_yield()
        began = time.monotonic()
    try:
        comm.all_reduce(torch.ones(1000), ReduceOp.SUM, False, timeout=0.5)
        assert rank == 1, "it went through"  # where the data of the others was there already
        comm.barrier(False, timeout=20.0)
        raise AssertionError("it went on")
    except torchcomms.CommTimeout as error:
        text = str(error)
    if rank != 1:
        took = time.monotonic() - began
        assert 0.4 < took < 5.0, took
        assert "rank 1 did not answer within 500 ms" in text, text
        assert "ranks 0, 2: in all_reduce(float32, 1000 elements, SUM)" in text, text
        # Until both have heard nothing it stays as it is.
        mark = pathlib.Path(tempfile.gettempdir(), f"torchcomms-stopped-{process.item()}")
        pathlib.Path(f"{mark}-{rank}").touch()
        other = pathlib.Path(f"{mark}-{2 - rank}")
        while not other.exists() and time.monotonic() < began + 30:
            os.sched_yield()
        os.kill(process.item(), signal.SIGCONT)
        other.unlink(missing_ok=True)
    print("told")
    comm.finalize()
"""


@pytest.mark.skipif(not torchcomms.is_backend_built("ctran"), reason="needs backend ctran")
def test_a_stopped_process_is_named_as_silent_and_is_told_when_it_goes_on():
    for rank in ranks(STOPPED, 3, free_port()):
        assert rank.expect_success().out.strip() == "told"


def unconnected(context):
    """As many calls as ever, and splits: the hint of the parent's counts for both."""
    comm = context.new_comm(hints={"side_channel": "false"})
    child = comm.split(list(range(context.size)), "child")
    for one in (comm, child):
        assert one.describe()["notes"]["side channel"] == "none"
        tensor = torch.ones(3)
        one.all_reduce(tensor, ReduceOp.SUM, False)
        assert tensor.tolist() == [context.size] * 3
        one.finalize()
    return []


@pytest.mark.worlds(backends=("gloo",), sizes=(2, 4))
def test_without_the_side_channel_gloo_has_none(world):
    check_context(world, unconnected)


def connected(context):
    comm = context.comm
    child = comm.split(list(range(context.size))[::-1], "child")
    for one in (comm, child):
        assert "compared when they are late" in one.describe()["notes"]["side channel"]
    child.finalize()
    return []


@pytest.mark.worlds(backends=("gloo",), sizes=(2, 4))
def test_a_split_has_its_parents_side_channel(world):
    check_context(world, connected)
