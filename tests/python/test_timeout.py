"""Timeout, and what is a time limit wherever one is asked for."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import BatchP2POptions, CommOptions, Timeout

from tests.harness.cases import refused
from tests.harness.environment import environment


def test_timeout_is_a_timedelta_with_its_constructor():
    assert issubclass(Timeout, timedelta)
    limit = Timeout(days=1, seconds=2, microseconds=3, milliseconds=4, minutes=5, hours=6, weeks=7)
    assert limit == timedelta(1, 2, 3, 4, 5, 6, 7)
    assert type(limit) is Timeout
    assert Timeout() == timedelta(0)
    assert Timeout(seconds=3) + timedelta(seconds=1) == timedelta(seconds=4)
    assert pickle.loads(pickle.dumps(Timeout(seconds=3))) == timedelta(seconds=3)
    assert hash(Timeout(seconds=3)) == hash(timedelta(seconds=3))


@pytest.mark.parametrize("options", [CommOptions, BatchP2POptions, torchcomms.SendOptions])
def test_options_keep_limits_in_milliseconds(options):
    made = options()
    for given, kept in (
        (timedelta(seconds=5), 5.0), (Timeout(seconds=6), 6.0), (7.5, 7.5),
        (timedelta(milliseconds=1), 0.001), (timedelta(microseconds=1999), 0.001),
        (timedelta(microseconds=999), 0.0), (0.0, 0.0), (timedelta(days=400), 400 * 86400.0),
        (timedelta.max, 1e9), (timedelta(days=20000), 1e9), (float("inf"), 1e9), (1e300, 1e9),
    ):  # fmt: skip
        made.timeout = given
        assert made.timeout == timedelta(seconds=kept), given
        assert isinstance(made.timeout, timedelta)


OPTIONS = (CommOptions, BatchP2POptions, torchcomms.AllReduceOptions, torchcomms.ReconfigureOptions)


@pytest.mark.parametrize("limit", [5, "5", None, b"5", [5.0]], ids=repr)
def test_options_refuse_what_is_no_limit(limit):
    for options in OPTIONS:
        if options is torchcomms.ReconfigureOptions and limit is None:
            continue
        with refused(
            TypeError, f"{options.__name__}.timeout", "datetime.timedelta", type(limit).__name__
        ):
            options().timeout = limit


@pytest.mark.parametrize("limit", [timedelta.min, -1e300, float("nan")], ids=repr)
def test_options_refuse_what_no_clock_counts_to(limit):
    for options in OPTIONS:
        with refused(
            torchcomms.InvalidArgument, f"{options.__name__}.timeout", repr(limit), "0 or more"
        ):
            options().timeout = limit


def test_windows_refuse_what_is_no_limit():
    with environment(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1"):
        comm = torchcomms.new_comm("ctran", torch.device("cpu"), "windowed", timeout=9.0)
    window = comm.new_window(torch.zeros(4))

    def waits(limit):
        window.wait_signal(0, False, timeout=limit)

    def signals(limit):
        window.signal(0, False, timeout=limit)

    def puts(limit):
        window.put(torch.zeros(1), 0, 0, False, timeout=limit)

    for limit, error, said in (
        (1, TypeError, "datetime.timedelta"),
        ("soon", TypeError, "datetime.timedelta"),
        (timedelta.min, ValueError, "0 or more"),
        (timedelta(seconds=-1), ValueError, "1e9 seconds"),
    ):
        for name, call in (("wait_signal", waits), ("signal", signals), ("put", puts)):
            with refused(error, name, "timeout", said):
                call(limit)
    comm.finalize()


def test_new_comm_takes_every_kind_of_limit():
    for limit, kept in ((timedelta(seconds=9), 9), (Timeout(seconds=8), 8), (7.0, 7)):
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "limited", timeout=limit)
        assert comm.get_options().timeout == timedelta(seconds=kept)


def test_a_process_groups_limit_beyond_decades_is_the_longest_one():
    with environment(TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1"):
        comm = torchcomms.new_comm("ctran", torch.device("cpu"), "grouped")
    group = torchcomms._comms._BackendWrapper(comm)
    group._set_default_timeout(timedelta(days=20000))
    group.allreduce([torch.ones(2)]).wait()
    comm.finalize()


def test_the_default_is_ten_minutes():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "unlimited")
    assert comm.get_options().timeout == timedelta(seconds=600)
    assert CommOptions().timeout == timedelta(minutes=10)
