"""Values of the native modules go through pickle and copy as what they are."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
from datetime import timedelta

import pytest
import torch
import torchcomms
from torch.distributed import HashStore
from torchcomms import CommOptions, ReconfigureOptions, RedOpType, ReduceOp

PLAIN = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"]
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


def enums(namespace, seen):
    """The enumerations of a native module or class, and of what is in it."""
    for value in vars(namespace).values():
        if not isinstance(value, type) or value in seen:
            continue
        seen.add(value)
        if hasattr(value, "__members__"):
            yield value
        elif value.__module__.startswith("torchcomms"):
            yield from enums(value, seen)


def native_enums():
    found = []
    for name in ("_comms", "_vendor"):
        found += enums(importlib.import_module(f"torchcomms.{name}"), set())
    return found


def test_every_member_of_every_enumeration_is_pickled_and_copied():
    names = {enum.__name__ for enum in native_enums()}
    assert names >= {
        "RedOpType", "WorkStatus", "OpName", "P2POpType", "TorchCommWinAccessType", "SignalCmpOp",
        "Collective",
    }  # fmt: skip
    for enum in native_enums():
        for member in enum.__members__.values():
            for again in (
                *(pickle.loads(pickle.dumps(member, protocol)) for protocol in PROTOCOLS),
                copy.copy(member),
                copy.deepcopy(member),
            ):
                assert type(again) is enum
                assert again == member


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_reduce_ops_are_pickled(protocol):
    def sent(op):
        return pickle.loads(pickle.dumps(op, protocol))

    for name in PLAIN:
        op = getattr(ReduceOp, name)
        assert sent(op) == op
        assert hash(sent(op)) == hash(op)
    assert sent(ReduceOp.PREMUL_SUM(0.5)) == ReduceOp.PREMUL_SUM(0.5)
    factor = torch.tensor([2, 3])
    again = sent(ReduceOp.PREMUL_SUM(factor))
    assert again.type == RedOpType.PREMUL_SUM
    assert torch.equal(again._factor, factor)


@pytest.mark.parametrize("state", [("SUM", 0.5), ("PREMUL_SUM", None), ("NONE", None)])
def test_a_state_that_no_reduce_op_has_is_refused(state):
    with pytest.raises(torchcomms.InvalidArgument, match=rf"'{state[0]}'.*allowed"):
        ReduceOp.__new__(ReduceOp).__setstate__(state)


def received(queue, op):
    queue.put((op, op.type))


def test_a_reduce_op_is_an_argument_of_a_process():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=received, args=(queue, ReduceOp.PREMUL_SUM(3.0)))
    process.start()
    assert queue.get(timeout=120) == (ReduceOp.PREMUL_SUM(3.0), RedOpType.PREMUL_SUM)
    process.join()


def set_options():
    options = CommOptions()
    options.abort_process_on_timeout_or_error = not options.abort_process_on_timeout_or_error
    options.timeout = timedelta(seconds=7)
    options.enable_reconfigure = True
    options.name = "pickled"
    options.hints = {"key": "value"}
    return options


FIELDS = ("abort_process_on_timeout_or_error", "timeout", "enable_reconfigure", "name", "hints")


def test_comm_options_are_pickled_and_copied():
    options = set_options()
    for again in (
        *(pickle.loads(pickle.dumps(options, protocol)) for protocol in PROTOCOLS),
        copy.copy(options),
        copy.deepcopy(options),
    ):
        assert again is not options
        for field in FIELDS:
            assert getattr(again, field) == getattr(options, field), field
        assert again.store is None


def test_a_store_is_shared_by_copies_and_not_pickled():
    options, store = set_options(), HashStore()
    options.store = store
    for again in (copy.copy(options), copy.deepcopy({"options": options})["options"]):
        again.store.set("through", "the copy")
        assert store.get("through") == b"the copy"
    with pytest.raises(torchcomms.Unsupported, match=r"store cannot be pickled.*store to None"):
        pickle.dumps(options)


def test_options_of_operations_are_pickled_and_copied():
    kinds = [
        kind
        for name, kind in vars(torchcomms._comms).items()
        if name.endswith("Options") and hasattr(kind, "hints")
    ]
    assert len(kinds) > 20
    for kind in kinds:
        options = kind()
        options.hints, options.timeout = {"a": "b"}, timedelta(seconds=3)
        if hasattr(options, "tag"):
            options.tag = 5
        for again in (pickle.loads(pickle.dumps(options)), copy.copy(options)):
            assert type(again) is kind
            assert (again.hints, again.timeout) == ({"a": "b"}, timedelta(seconds=3))
            assert getattr(again, "tag", 5) == 5


@pytest.mark.parametrize("handles", [["b", "a"], {"a", "b"}])
def test_options_of_reconfigure_keep_the_kind_of_their_handles(handles):
    options = ReconfigureOptions(7, handles, timedelta(seconds=2), {"a": "b"})
    again = pickle.loads(pickle.dumps(options))
    assert (again.uuid, again.init_handles, again.timeout, again.hints) == (
        7, handles, timedelta(seconds=2), {"a": "b"},
    )  # fmt: skip
