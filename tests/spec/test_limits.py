"""What is a limit, and whose counts: a call's own, the communicator's, the default."""

from __future__ import annotations

import math
import time
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import BatchP2POptions, ReduceOp, Timeout

from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.environment import environment
from tests.harness.operations import OPERATIONS, call, operations_for
from tests.harness.timed import SHORT_S, end, own_comm, times_out


def by_creation(context):
    failures = Failures()
    for name in ("recv", "barrier"):
        comm = own_comm(context, timeout=timedelta(seconds=SHORT_S))
        comm.barrier(False, timeout=30.0)
        if context.rank == 0:
            with failures.case(name, "creation"):
                times_out(lambda comm=comm, name=name: call(comm, name, False), name)
        end(context, comm)
    with environment(TORCHCOMM_TIMEOUT_SECONDS=str(SHORT_S)):
        comm = own_comm(context)
    comm.barrier(False, timeout=30.0)
    if context.rank == 0:
        with failures.case("environment, in decimals"):
            times_out(lambda: comm.recv(torch.zeros(1), 1, False), "recv")
    end(context, comm)
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3))
def test_without_a_limit_of_its_own_an_operation_has_the_communicators(world):
    check_context(world, by_creation)


def longer_per_call(context):
    """Rank 1 comes later than the communicator's limit, but within the call's."""
    clock, comm = context.new_comm(), own_comm(context, timeout=timedelta(seconds=SHORT_S))
    comm.barrier(False, timeout=30.0)
    tensor = torch.ones(2)
    if context.rank == 1:
        began = time.monotonic()
        while time.monotonic() - began < 2 * SHORT_S:  # rank 0 is silent on `clock`
            with pytest.raises(torchcomms.CommTimeout):
                clock.recv(torch.zeros(1), 0, False, timeout=2 * SHORT_S)
    comm.all_reduce(tensor, ReduceOp.SUM, False, timeout=60.0)
    comm.finalize()
    return tensor.tolist()


@pytest.mark.worlds(sizes=(2,))
def test_the_limit_of_a_call_wins_over_the_communicators(world):
    assert world.run_context(longer_per_call) == [[2.0, 2.0]] * 2


def accepted_types(context):
    failures, works = Failures(), []
    for name in operations_for(context):
        for limit in (
            timedelta(seconds=30),
            Timeout(seconds=30),
            30.0,
            None,
            timedelta(0),
            0.0,
            timedelta(days=30),
            timedelta(days=20000),
            timedelta.max,
            math.inf,
        ):
            with failures.case(name, repr(limit)):
                works.append(call(context.comm, name, True, timeout=limit))
    for work in works:
        work.wait()
    return failures.texts


@pytest.mark.worlds(data=False)
def test_a_limit_is_a_timedelta_a_timeout_or_float_seconds_and_zero_is_none(world):
    check_context(world, accepted_types)


def refused_types(context):
    failures = Failures()
    if context.rank == 0:
        for name in OPERATIONS:
            for limit in (30, "30", [30.0], True, object()):
                with failures.case(name, repr(limit)), refused(TypeError):
                    call(context.comm, name, False, timeout=limit)
        for limit in (30, "30"):
            with failures.case("split", repr(limit)), refused(TypeError):
                context.comm.split([0], "limited", timeout=limit)
            with (
                failures.case("set_timeout", repr(limit)),
                refused(TypeError, "set_timeout", "'timeout' must be datetime.timedelta"),
            ):
                context.comm.set_timeout(limit)
            with (
                failures.case("batch", repr(limit)),
                refused(TypeError, "BatchP2POptions.timeout must be datetime.timedelta", "not"),
            ):
                BatchP2POptions().timeout = limit
        with failures.case("negative"), refused(ValueError, "set_timeout", "-1000 ms"):
            context.comm.set_timeout(timedelta(seconds=-1))
    if context.row.moves_data:
        assert_alive(context.comm)
    return failures.texts


@pytest.mark.worlds(data=False)
def test_ints_and_text_are_type_errors(world):
    check_context(world, refused_types)


def refused_values(context):
    comm, failures = context.comm, Failures()
    for limit in (-1.0, timedelta(seconds=-2), timedelta.min, -math.inf):
        for name in operations_for(context):
            with failures.case(name, limit), refused(ValueError, name, "timeout", "allowed is"):
                call(comm, name, False, timeout=limit)
        with failures.case("split", limit), refused(ValueError, "split", "timeout"):
            comm.split(list(range(context.size)), "limited", timeout=limit)
        with failures.case("set_timeout", limit), refused(ValueError, "set_timeout", "timeout"):
            comm.set_timeout(limit)
        with failures.case("new_comm", limit), refused(ValueError, "new_comm", "timeout"):
            context.new_comm(timeout=limit)
    assert_alive(comm)
    return failures.texts


def test_limits_below_zero_are_refused_before_anything_is_sent(world):
    check_context(world, refused_values)


def longest_limits(context):
    """What is longer than any clock counts to is the longest limit, 1e9 seconds."""
    failures = Failures()
    for limit in (timedelta.max, timedelta(days=20000), math.inf, 1e18):
        with failures.case(limit):
            comm = context.new_comm(timeout=limit)
            assert comm.get_options().timeout == timedelta(seconds=1e9)
            child = comm.split(list(range(context.size)), "limited", timeout=limit)
            assert child.get_options().timeout == timedelta(seconds=1e9)
            for one in (child, comm):
                one.set_timeout(limit)
                assert_alive(one)
                one.finalize()
    return failures.texts


def test_limits_beyond_decades_are_the_longest_one(world):
    check_context(world, longest_limits)


def no_limit_at_all(context):
    comm, failures = context.comm, Failures()
    said = "timeout is nan"
    for name in operations_for(context):
        with failures.case(name), refused(ValueError, name, said, "0 or more"):
            call(comm, name, False, timeout=math.nan)
    with failures.case("new_comm"), refused(ValueError, "new_comm", said, "0 or more"):
        context.new_comm(timeout=math.nan)
    assert_alive(comm)
    return failures.texts


def test_a_limit_that_is_no_time_is_refused_as_it_was_written(world):
    check_context(world, no_limit_at_all)


def truncated(context):
    """Resolution is one millisecond: less than that is zero, which is "not set"."""
    tensor = torch.ones(1)
    context.comm.all_reduce(tensor, ReduceOp.SUM, False, timeout=timedelta(microseconds=900))
    return tensor.item()


def test_less_than_a_millisecond_is_no_limit(world):
    assert world.run_context(truncated) == [float(world.size)] * world.size


def late_set_timeout(context):
    comm = own_comm(context)
    if "set_timeout" in context.row.optional:
        comm.set_timeout(timedelta(seconds=5))
        comm.set_timeout(SHORT_S)
        if context.row.moves_data and (context.rank, context.size) == (0, 2):
            times_out(lambda: comm.recv(torch.zeros(1), 1, False), "recv")
        context.meet("late_set_timeout")
        comm.finalize()
        return []
    comm.barrier(False)
    if context.rank == 0:
        with refused(RuntimeError, "not implemented", context.backend):
            comm.set_timeout(SHORT_S)
    comm.finalize()
    return []


@pytest.mark.worlds(data=False, sizes=(1, 2))
def test_set_timeout_is_accepted_where_supported(world):
    check_context(world, late_set_timeout)
