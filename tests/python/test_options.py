"""The option classes: attributes, defaults, what they refuse."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torchcomms
from torch.distributed import HashStore
from torchcomms import BatchP2POptions, CommOptions, ReconfigureOptions

from tests.harness.environment import environment

OPERATION_OPTIONS = [f"{name}Options" for name in (
    "Send", "Recv", "Broadcast", "AllReduce", "Reduce", "AllGather", "AllGatherSingle",
    "ReduceScatter", "ReduceScatterSingle", "AllToAll", "AllToAllSingle", "AllToAllvSingle",
    "Barrier", "Scatter", "Gather", "GatherSingle", "AllGatherPInit", "AllGatherPExec",
)]  # fmt: skip


def test_comm_options_have_the_documented_defaults():
    options = CommOptions()
    assert options.abort_process_on_timeout_or_error is True
    assert options.timeout == timedelta(seconds=600)
    assert options.store is None
    assert options.enable_reconfigure is False
    assert options.hints == {}
    assert isinstance(options.name, str)


def test_comm_options_can_be_set():
    options, store = CommOptions(), HashStore()
    options.abort_process_on_timeout_or_error = False
    options.timeout = timedelta(seconds=30)
    options.store = store
    options.enable_reconfigure = True
    options.hints = {"key": "value"}
    options.name = "my_comm"
    assert options.abort_process_on_timeout_or_error is False
    assert options.timeout == timedelta(seconds=30)
    options.store.set("through", "the option")
    assert store.get("through") == b"the option"
    assert options.enable_reconfigure is True
    assert options.hints == {"key": "value"}
    assert options.name == "my_comm"


def test_the_constructor_reads_the_environment_each_time():
    with environment(TORCHCOMM_TIMEOUT_SECONDS="12", TORCHCOMM_ABORT_ON_ERROR="no"):
        changed = CommOptions()
    assert changed.timeout == timedelta(seconds=12)
    assert changed.abort_process_on_timeout_or_error is False
    assert CommOptions().timeout == timedelta(seconds=600)


@pytest.mark.parametrize("options", [CommOptions, BatchP2POptions])
def test_unknown_attributes_are_attribute_errors(options):
    with pytest.raises(AttributeError):
        options().no_such_option = 1
    with pytest.raises(AttributeError):
        options().no_such_option  # noqa: B018
    with pytest.raises(TypeError):
        options(timeout=1.0)


@pytest.mark.parametrize("options", [CommOptions, BatchP2POptions, torchcomms.RecvOptions])
def test_hints_are_read_as_a_copy(options):
    made = options()
    made.hints["lost"] = "change"
    assert made.hints == {}
    made.hints = {"kept": "yes"}
    made.hints["lost"] = "change"
    assert made.hints == {"kept": "yes"}


@pytest.mark.parametrize("hints", [{"a": 1}, {1: "a"}, {"a": None}, "text", None, ["a"]], ids=repr)
def test_hints_of_other_types_are_type_errors(hints):
    for options in (CommOptions(), BatchP2POptions(), torchcomms.SendOptions()):
        with pytest.raises(TypeError):
            options.hints = hints


@pytest.mark.parametrize("attribute", ["abort_process_on_timeout_or_error", "enable_reconfigure"])
def test_flags_refuse_text(attribute):
    with pytest.raises(TypeError):
        setattr(CommOptions(), attribute, "maybe")


def test_the_store_must_be_a_store():
    with pytest.raises(TypeError):
        CommOptions().store = "127.0.0.1:29500"


@pytest.mark.parametrize("name", [*OPERATION_OPTIONS, "BatchP2POptions"])
def test_each_operation_has_its_options(name):
    options = getattr(torchcomms, name)()
    assert options.timeout == timedelta(0), "unset"
    assert options.hints == {}
    options.timeout = timedelta(seconds=3)
    options.hints = {"a": "b"}
    assert (options.timeout, options.hints) == (timedelta(seconds=3), {"a": "b"})


def test_reconfigure_options():
    empty = ReconfigureOptions()
    assert empty.init_handles == set()
    assert empty.timeout is None
    assert empty.hints == {}
    ordered = ReconfigureOptions(7, ["b", "a"])
    assert (ordered.uuid, ordered.init_handles) == (7, ["b", "a"])
    given = ReconfigureOptions(
        uuid=8, init_handles={"a", "b"}, timeout=timedelta(seconds=2), hints={"k": "v"}
    )
    assert given.init_handles == {"a", "b"}
    assert (given.timeout, given.hints) == (timedelta(seconds=2), {"k": "v"})
    given.uuid, given.init_handles, given.timeout, given.hints = 9, ["x"], None, {}
    assert (given.uuid, given.init_handles, given.timeout, given.hints) == (9, ["x"], None, {})


def shown(**options):
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "optioned", **options)
    return comm.get_options()


def test_explicit_arguments_win_over_the_environment():
    with environment(TORCHCOMM_TIMEOUT_SECONDS="12", TORCHCOMM_ABORT_ON_ERROR="0"):
        assert shown().timeout == timedelta(seconds=12)
        assert shown().abort_process_on_timeout_or_error is False
        assert shown(timeout=3.0).timeout == timedelta(seconds=3)
        assert shown(abort_process_on_timeout_or_error=True).abort_process_on_timeout_or_error


def test_high_priority_is_accepted_as_keyword_and_as_hint():
    key = "is_high_priority_stream"
    for value in (True, False):
        assert shown(is_high_priority_stream=value).hints[key] == str(value)
    assert key not in shown(is_high_priority_stream=None).hints
    assert shown(is_high_priority_stream=False, hints={key: "true"}).hints[key] == "true"
