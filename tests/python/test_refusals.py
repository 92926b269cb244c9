"""Calls that there are not: the error says what there is instead."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torchcomms
from torchcomms import ReduceOp, TorchWork

from tests.harness.operations import call

MADE_BY = {
    "TorchComm": "torchcomms.new_comm(backend, device, name)",
    "TorchWork": "operations of a communicator return one",
    "TorchCommWindow": "TorchComm.new_window() and TorchComm.window_allocate()",
    "BatchSendRecv": "TorchComm.batch_op_create()",
}


@pytest.mark.parametrize("name", MADE_BY)
@pytest.mark.parametrize("given", [(), (1, "two")], ids=str)
def test_a_class_without_a_constructor_says_what_makes_its_objects(name, given):
    with pytest.raises(TypeError) as caught:
        getattr(torchcomms, name)(*given)
    assert str(caught.value).startswith(f"{name} has no constructor: ")
    assert MADE_BY[name] in str(caught.value)
    with pytest.raises(TypeError, match="has no constructor"):
        getattr(torchcomms, name)(timeout=3)


@pytest.mark.parametrize("method", ["wait", "wait_blocking"])
@pytest.mark.parametrize(
    ("given", "named", "seen"),
    [
        ((3,), {}, "int 3"),
        ((2.5,), {}, "float 2.5"),
        ((timedelta(seconds=3), 4), {}, "datetime.timedelta"),
        ((None,), {}, "NoneType"),
        ((), {"timeout": 3}, "timeout=int 3"),
        ((), {"limit": "soon"}, "limit=str"),
    ],
    ids=str,
)
def test_a_wait_takes_no_limit_and_says_what_does(comm, method, given, named, seen):
    work = call(comm, "all_reduce", True, op=ReduceOp.SUM)
    with pytest.raises(TypeError) as caught:
        getattr(work, method)(*given, **named)
    text = str(caught.value)
    assert text.startswith(f"{method}() takes no arguments, not {seen}: "), text
    assert "pass 'timeout' to the operation itself" in text, text
    assert getattr(work, method)() is None


@pytest.mark.parametrize("method", ["wait", "wait_blocking"])
def test_a_wait_has_one_signature(method):
    text = getattr(TorchWork, method).__doc__
    assert text.startswith(f"{method}(self: torchcomms._comms.TorchWork) -> None\n\n"), text
    assert "args" not in text
