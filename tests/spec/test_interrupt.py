"""Ctrl-C, and any other signal whose Python handler raises, ends a call that waits for a peer."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.party import Party

pytestmark = pytest.mark.worlds(sizes=(2,))

SOON_S = 0.2
# What the calls would wait for without the signal; then they raise something else.
LONG = timedelta(seconds=30)


class Interrupt(Exception):
    """What the signal's handler raises."""


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """What runs inside is interrupted soon, and must not return before that."""

    def handle(_number: int, _frame: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, SOON_S)
    try:
        with pytest.raises(Interrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def waiting_message(context):
    comm = context.comm  # made by both before one of them is interrupted
    if context.rank == 0:
        with interrupted():
            comm.recv(torch.zeros(1), 1, False, timeout=LONG)
    context.meet("interrupted")
    # The interrupted message is still under way: its partner completes it.
    if context.rank == 1:
        comm.send(torch.ones(1), 0, False)
    assert_alive(comm)
    return []


def test_a_waiting_message_is_interrupted(world):
    check_context(world, waiting_message)


def waiting_reconfigure(context):
    party = Party(context)
    party.form([0, 1])
    handles = party.handles()
    if context.rank == 0:
        with interrupted():
            party.reconfigure(handles, 20, timeout=LONG)
        party.is_of_nobody()
        with refused(torchcomms.CommFinalized, "reconfigure() first"):
            party.comm.barrier(False)
    context.meet("reconfigure interrupted")
    party.uuid = 30
    party.form([0, 1])
    party.comm.finalize()
    return []


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2,))
def test_a_waiting_reconfigure_is_interrupted_and_may_be_called_again(world):
    check_context(world, waiting_reconfigure)


def waiting_collective(context):
    comm = context.new_comm()
    work = None
    if context.rank == 0:
        work = comm.barrier(True, timeout=LONG)
        with interrupted():
            work.wait()
    context.meet("collective interrupted")
    if context.rank == 1:
        comm.barrier(False)
    else:
        work.wait()
    comm.finalize()
    return []


def test_a_waiting_collective_is_interrupted_and_may_be_waited_for_again(world):
    check_context(world, waiting_collective)


def compared_collective(context):
    """The call is interrupted where ranks compare it: it goes on all the same."""
    failures = Failures()
    comm = context.new_comm(hints={**dict(context.row.hints), "check_calls": "true"})
    tensor = torch.full((3,), float(context.rank + 1))
    if context.rank == 0:
        with interrupted():
            comm.all_reduce(tensor, ReduceOp.SUM, False, timeout=LONG)
    context.meet("compared collective interrupted")
    if context.rank == 1:
        comm.all_reduce(tensor, ReduceOp.SUM, False)
    assert_alive(comm)
    with failures.case("the interrupted one"):
        assert tensor.tolist() == [3.0] * 3
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2,))
def test_a_collective_that_is_interrupted_where_it_is_compared_goes_on(world):
    check_context(world, compared_collective)


def waiting_start(context):
    failures = Failures()
    if context.rank == 0:
        with failures.case("new_comm"), interrupted():
            torchcomms.new_comm(
                context.backend, context.device, "alone", store=context.store("alone"), timeout=LONG
            )
    context.meet("start interrupted")
    return failures.texts


def test_a_waiting_start_is_interrupted(world):
    check_context(world, waiting_start)
