"""The older generation of the interface: what its programs wrote still works."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torchcomms
from torch.distributed import HashStore
from torchcomms import CommOptions, ReduceOp, new_comm

CPU = torch.device("cpu")


def test_the_older_positional_order_is_told_by_the_type_of_the_third_value():
    """(backend, device, abort, timeout, store, name, hints)"""
    comm = new_comm("fake", CPU, False, timedelta(seconds=7), HashStore(), "older", {"k": "v"})
    options = comm.get_options()
    assert comm.get_name() == "older"
    assert options.abort_process_on_timeout_or_error is False
    assert options.timeout == timedelta(seconds=7)
    assert options.hints["k"] == "v"


@pytest.mark.parametrize("third", [None, True, False])
def test_the_older_order_may_stop_early_or_go_on_by_keyword(third):
    want = True if third is None else third
    comm = new_comm("fake", CPU, third)
    assert comm.get_name()
    assert comm.get_options().abort_process_on_timeout_or_error is want
    comm = new_comm("fake", CPU, third, timedelta(seconds=4), name="by_keyword")
    assert comm.get_name() == "by_keyword"
    assert comm.get_options().timeout == timedelta(seconds=4)
    comm = new_comm("fake", CPU, third, None, None, "sixth")
    assert comm.get_name() == "sixth"


def test_the_newer_order_takes_nine_positional_values():
    comm = new_comm(
        "fake", CPU, "newer", False, timedelta(seconds=3), True, None, False, {"k": "v"}
    )
    assert comm.get_name() == "newer"
    assert comm.get_options().timeout == timedelta(seconds=3)
    assert comm.get_options().hints["k"] == "v"


def test_a_name_left_out_is_generated_and_never_the_same_twice():
    names = {new_comm("fake", CPU).get_name() for _ in range(5)}
    assert len(names) == 5
    assert all(isinstance(name, str) and name for name in names)


@pytest.mark.parametrize("name", [5, b"name", 1.5, ["n"]], ids=repr)
def test_a_name_that_is_no_text_is_a_type_error(name):
    with pytest.raises(TypeError):
        new_comm("fake", CPU, name)
    with pytest.raises(TypeError):
        new_comm("fake", CPU, name=name)


def test_a_value_given_twice_is_a_type_error():
    with pytest.raises(TypeError):
        new_comm("fake", CPU, False, abort_process_on_timeout_or_error=True)
    with pytest.raises(TypeError):
        new_comm("fake", CPU, "n", name="n")
    with pytest.raises(TypeError):
        new_comm("fake", CPU, None, None, None, "n", {}, "surplus")


def test_an_options_object_is_accepted_and_explicit_keywords_win():
    options = CommOptions()
    options.timeout = timedelta(seconds=21)
    options.abort_process_on_timeout_or_error = False
    options.name = "from_options"
    options.hints = {"from": "options"}
    comm = new_comm("fake", CPU, options=options)
    shown = comm.get_options()
    assert comm.get_name() == "from_options"
    assert shown.timeout == timedelta(seconds=21)
    assert shown.abort_process_on_timeout_or_error is False
    assert shown.hints["from"] == "options"
    comm = new_comm(
        "fake",
        CPU,
        name="explicit",
        timeout=2.0,
        options=options,
        abort_process_on_timeout_or_error=True,
        hints={"from": "keyword"},
    )
    shown = comm.get_options()
    assert comm.get_name() == "explicit"
    assert shown.timeout == timedelta(seconds=2)
    assert shown.abort_process_on_timeout_or_error is True
    assert shown.hints["from"] == "keyword"
    assert options.timeout == timedelta(seconds=21), "the caller's object was changed"
    options.enable_reconfigure = True
    for given, wanted in ({}, True), ({"enable_reconfigure": False}, False):
        comm = new_comm("fake", CPU, options=options, **given)
        assert comm.get_options().enable_reconfigure is wanted


def test_split_by_groups_takes_the_one_with_the_own_rank(comm):
    child = comm.split(rank_groups=[[0]], name="sub_group", hints=None, timeout=None)
    assert child.get_size() == 1
    assert comm.split(rank_groups=[], name="none") is None
    assert comm.split([[0]], "in_the_place_of_ranks").get_size() == 1
    assert comm.split(([],), "none") is None


def test_split_without_a_name_generates_one(comm):
    first, second = comm.split([0]), comm.split([0])
    assert first.get_name() != second.get_name()
    assert comm.get_name() in first.get_name()


def test_the_seeds_spelling_of_calls(comm):
    """Keywords and positions as the older documents show them."""
    tensor = torch.ones(4)
    comm.all_reduce(
        tensor,
        ReduceOp.SUM,
        async_op=False,
        timeout=timedelta(seconds=60),
        hints={"torchcomm::ncclx::high_priority_stream": "true"},
    )
    comm.broadcast(tensor, root=0, async_op=True).wait()
    comm.send(tensor, dst=0, async_op=False)
    comm.recv(tensor, src=0, async_op=False)
    batch = comm.batch_op_create()
    batch.send(tensor, dst=0)
    batch.recv(tensor, src=0)
    batch.issue(async_op=True).wait()


def test_there_is_a_version():
    assert isinstance(torchcomms.__version__, str)
    assert torchcomms.__version__
