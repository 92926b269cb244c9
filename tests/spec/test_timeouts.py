"""What happens when a limit passes: nothing blocks past it, and the error says which one it was.

A peer is silent because it does not call; whoever waits for it measures its own time. Upper bounds
are far above the limits: they separate "soon after the limit" from "at the default of minutes".
"""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import BatchP2POptions, ReduceOp
from torchcomms.hooks import FlightRecorderHook

from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.environment import environment
from tests.harness.operations import COLLECTIVES, call
from tests.harness.timed import SHORT_S, SOON_S, end, own_comm, times_out

several = pytest.mark.worlds(sizes=(2, 3))


def silent_peer(context):
    comm, failures, rank, last = context.new_comm(), Failures(), context.rank, context.size - 1
    store = context.store("silent_peer")
    comm.barrier(False)
    if rank == 0:
        with failures.case("recv"):
            times_out(lambda: comm.recv(torch.zeros(3), 1, False, timeout=SHORT_S), "recv")
        with failures.case("aborted where all ends"):
            assert comm.is_aborted() is context.row.fails_as_a_whole
        store.set("met", "yes")
    else:
        store.wait(["met"])
    if context.row.fails_as_a_whole:
        # Of a library whose ranks hear nothing of it, when their own limit passes, or as it likes.
        seen = (torchcomms.CommError,) if context.row.vendor else (torchcomms.CommTimeout, "rank 0")
        with failures.case("everything fails"), refused(*seen):
            comm.barrier(False, timeout=3.0 if context.row.vendor else 30.0)
    elif last > 1 and rank in (0, last):  # with all other peers it keeps working
        with failures.case("other peer"):
            tensor = torch.full((2,), float(rank))
            if rank == 0:
                comm.send(tensor, last, False, timeout=30.0)
                comm.recv(tensor, last, False, timeout=30.0)
                assert tensor.tolist() == [5.0, 5.0]
            else:
                comm.recv(tensor, 0, False, timeout=30.0)
                assert tensor.tolist() == [0.0, 0.0]
                comm.send(tensor + 5, 0, False, timeout=30.0)
    with failures.case("finalize"):
        comm.finalize()
    return failures.texts


@several
def test_recv_from_a_silent_peer_times_out_and_others_answer_or_fail_with_it(world):
    check_context(world, silent_peer)


ARGUMENTS_OF = {"recv": (torch.zeros(3), 1, False), "barrier": (False,)}


def numbered(context, action):
    """Rank 0 alone calls `action` after an operation of each kind, and gets its error's number."""
    comm, failures = context.new_comm(), Failures()
    hook = FlightRecorderHook(16, isolated=True)
    hook.register_with_comm(comm)
    comm.barrier(False)
    tensor = torch.zeros(3)
    if context.rank == 0:
        comm.recv(tensor, 1, False)
        with failures.case("number"), pytest.raises(torchcomms.CommTimeout) as caught:
            getattr(comm, action)(*ARGUMENTS_OF[action], timeout=SHORT_S)
        if action == "recv" and not context.row.vendor:
            with failures.case("culprits"):
                assert (caught.value.peer, caught.value.culprits) == (1, (1,)), caught.value
        recorded = json.loads(hook.dump_json(True))["entries"][-1]["collective_seq_id"]
        with failures.case("as recorded"):
            # The start-up's own barrier counts on ctran.
            own = 1 if context.backend == "ctran" and action == "barrier" else 0
            assert caught.value.seq == recorded + own, (caught.value.seq, recorded)
            words = "message 2" if action == "recv" else f"operation {recorded + own}"
            assert f"{words})" in str(caught.value), str(caught.value)
    elif context.rank == 1:
        comm.send(tensor, 0, False)
    end(context, comm)
    return failures.texts


@pytest.mark.parametrize("action", ARGUMENTS_OF)
@pytest.mark.worlds(backends=("ctran", "gloo", "nccl"), sizes=(2, 3), device="cpu")
def test_an_error_has_the_number_that_a_flight_recorder_has_of_its_operation(world, action):
    check_context(world, numbered, action)


def whose_limit_it_was(context):
    comm, failures = context.new_comm(), Failures()
    comm.barrier(False)
    if context.rank == 0:
        comm.set_timeout(20.0)
        with failures.case("recv"):
            times_out(lambda: comm.recv(torch.zeros(3), 1, False, timeout=SHORT_S), "recv")
    context.meet("whose_limit/passed")
    for name, limit in (("its default", {}), ("its own", {"timeout": 7.0})):
        with failures.case(name), pytest.raises(torchcomms.CommTimeout) as caught:
            comm.all_reduce(torch.zeros(3), ReduceOp.SUM, False, **limit)
        text = str(caught.value)
        with failures.case(name, "text"):
            limit = "did not finish within its timeout of 300 ms, timeout= of that call; "
            assert f"recv of 12 bytes from rank 1 {limit}" in text, text
            assert not re.search(r"\b(20|7) s|communicator's timeout|this call", text), text
    end(context, comm)
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3), device="cpu")
def test_later_calls_name_the_limit_that_passed_and_whose_it_was(world):
    check_context(world, whose_limit_it_was)


def silent_split(context):
    comm, failures = context.new_comm(), Failures()
    comm.barrier(False)
    if context.rank == 0:
        everyone = list(range(context.size))
        with (
            failures.case("text"),
            refused(torchcomms.CommTimeout, "split", "timeout of 300 ms, timeout= of that call"),
        ):
            comm.split(everyone, "late", timeout=SHORT_S)
    end(context, comm)
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3), device="cpu")
def test_a_split_past_its_own_limit_says_that_it_was_its_own(world):
    check_context(world, silent_split)


def silent_split_with_the_default(context):
    comm, failures = own_comm(context, timeout=SOON_S), Failures()
    comm.barrier(False)
    if context.rank == 0:
        everyone = list(range(context.size))
        with environment(TORCHCOMM_TIMEOUT_SECONDS=str(SHORT_S)), failures.case("split"):
            times_out(lambda: comm.split(everyone, "late", timeout=SHORT_S), "split")
    end(context, comm)
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2,), device="cpu")
def test_a_splits_own_limit_is_its_own_though_it_is_the_default(world):
    check_context(world, silent_split_with_the_default)


def silent_collective(context, name):
    """Rank 0 alone takes part, as one that depends on rank 1."""
    comm, failures, fired = context.new_comm(), Failures(), []
    comm.barrier(False)
    comm.register_abort_hook(lambda: fired.append(name))
    if context.rank == 0:
        root = {"root": 1} if name in ("broadcast", "scatter") else {}
        with failures.case(name):
            # gather_single is a gather into views, and says so.
            named = "gather" if name == "gather_single" else name
            times_out(lambda: call(comm, name, False, **root, timeout=SHORT_S), named)
        with failures.case(name, "abort hooks"):
            assert fired == [name]
        with failures.case(name, "aborted where all ends"):
            assert comm.is_aborted() is context.row.fails_as_a_whole
    end(context, comm)
    return failures.texts


@several
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_others_do_not_join_times_out(world, name):
    """Abort hooks run once, before the error; the process lives."""
    check_context(world, silent_collective, name)


def silent_async(context):
    failures = Failures()
    for name in ("all_reduce", "recv"):  # a timeout closes connections: one communicator each
        comm, fired = context.new_comm(), []
        comm.barrier(False)
        comm.register_abort_hook(lambda fired=fired: fired.append(1))
        if context.rank == 0:
            with failures.case(name):
                work = call(comm, name, True, timeout=SHORT_S)
                times_out(work.wait, name)
                assert work.is_completed() is False
                for _ in range(2):  # it stays an error, and is there at once
                    began = time.monotonic()
                    with refused(torchcomms.CommTimeout, name):
                        work.wait()
                    assert time.monotonic() - began < SHORT_S
            with failures.case(name, "abort hook"):  # where it ends the communicator at once
                assert fired == ([1] if context.row.vendor else [])
        end(context, comm)
    return failures.texts


@several
def test_an_async_timeout_is_raised_by_every_wait(world):
    check_context(world, silent_async)


def silent_batch(context):
    comm, failures, fired = context.new_comm(), Failures(), []
    comm.barrier(False)
    comm.register_abort_hook(lambda: fired.append(1))
    if context.rank == 0:
        batch, options = comm.batch_op_create(), BatchP2POptions()
        batch.recv(torch.zeros(2), 1)
        options.timeout = timedelta(seconds=SHORT_S)
        with failures.case("batch"):
            times_out(lambda: batch.issue(False, options), "batch")
        with failures.case("abort hooks"):
            assert fired == [1]
    end(context, comm)
    return failures.texts


@several
def test_a_batch_times_out_by_its_options(world):
    check_context(world, silent_batch)


def failing_hook(context):
    """An exception inside an abort hook is no reason to lose the real error, or later hooks."""
    comm, fired = context.new_comm(), []
    comm.barrier(False)

    def fail():
        raise KeyError("hook")

    comm.register_abort_hook(fail)
    comm.register_abort_hook(lambda: fired.append("second"))
    removed = comm.register_abort_hook(lambda: fired.append("removed"))
    removed.remove()
    if context.rank == 0:
        times_out(lambda: comm.barrier(False, timeout=SHORT_S), "barrier")
        assert fired == ["second"]
    end(context, comm)
    return []


@several
def test_an_abort_hook_that_raises_hides_nothing(world):
    check_context(world, failing_hook)


def unrelated(context):
    """A timeout on one communicator leaves another one alone."""
    broken = context.new_comm()
    broken.barrier(False)
    if context.rank == 0:
        times_out(lambda: broken.barrier(False, timeout=SHORT_S), "barrier")
    assert_alive(context.comm)
    broken.finalize()
    return []


@several
def test_other_communicators_are_not_touched(world):
    check_context(world, unrelated)


def closed_connection(context):
    """What involves the peer that timed out fails at once afterwards, instead of waiting again."""
    comm = context.new_comm()
    comm.barrier(False)
    store = context.store("closed_connection")
    if context.rank == 0:
        times_out(lambda: comm.recv(torch.zeros(1), 1, False, timeout=SHORT_S), "recv")
        began = time.monotonic()
        with refused(RuntimeError, "recv"):
            comm.recv(torch.zeros(1), 1, False, timeout=60.0)
        assert time.monotonic() - began < SOON_S
        store.set("over", "yes")
    else:
        store.wait(["over"])
    comm.finalize()
    return []


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2, 3))
def test_a_peer_that_timed_out_before_fails_at_once(world):
    check_context(world, closed_connection)
