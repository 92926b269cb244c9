"""Timeout, and what is a time limit wherever one is asked for."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import BatchP2POptions, CommOptions, Timeout


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
    ):  # fmt: skip
        made.timeout = given
        assert made.timeout == timedelta(seconds=kept), given
        assert isinstance(made.timeout, timedelta)


@pytest.mark.parametrize("limit", [5, "5", None, b"5", [5.0]], ids=repr)
def test_options_refuse_what_is_no_limit(limit):
    for options in (CommOptions(), BatchP2POptions(), torchcomms.AllReduceOptions()):
        with pytest.raises(TypeError):
            options.timeout = limit


def test_new_comm_takes_every_kind_of_limit():
    for limit, kept in ((timedelta(seconds=9), 9), (Timeout(seconds=8), 8), (7.0, 7)):
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "limited", timeout=limit)
        assert comm.get_options().timeout == timedelta(seconds=kept)


def test_the_default_is_ten_minutes():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "unlimited")
    assert comm.get_options().timeout == timedelta(seconds=600)
    assert CommOptions().timeout == timedelta(minutes=10)
