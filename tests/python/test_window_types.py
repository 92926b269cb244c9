"""The value types of windows, and what `fake` makes of windows."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import TorchCommWinAccessType, TorchCommWindow, TorchCommWindowAttr

from tests.harness.cases import refused


def test_the_attribute_has_a_settable_access_type():
    attribute = TorchCommWindowAttr()
    for kind in TorchCommWinAccessType.__members__.values():
        attribute.access_type = kind
        assert attribute.access_type == kind
    with pytest.raises(TypeError):
        attribute.access_type = 0


def test_a_window_is_made_by_a_communicator_only():
    with pytest.raises(TypeError):
        TorchCommWindow()


def test_comparisons_of_signals_exist():
    kinds = torchcomms.SignalCmpOp
    assert len({kinds.EQ, kinds.GE, kinds.LE}) == 3


def test_windows_of_a_dry_run_check_and_move_nothing():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "dry", hints={"fake::size": "4"})
    window = comm.new_window()
    for wrong in (lambda: window.put(torch.ones(1), 0, 0, False), lambda: window.signal(0, False),
                    window.tensor_deregister, lambda: window.get_attr(0)):  # fmt: skip
        with pytest.raises(torchcomms.InvalidArgument, match="registered"):
            wrong()
    tensor = torch.zeros(4)
    window.tensor_register(tensor)
    with pytest.raises(torchcomms.InvalidArgument, match="already"):
        window.tensor_register(tensor)
    assert window.put(torch.ones(2), 3, 2, True).is_completed()
    window.signal(3, False)
    window.wait_signal(3, False)
    window.signal(0, 1, 3, False)
    window.wait_signal(0, 1, torchcomms.SignalCmpOp.EQ, False)
    assert tensor.tolist() == [0.0] * 4
    with pytest.raises(torchcomms.OutOfRange, match="put"):
        window.put(torch.ones(2), 3, 3, False)
    with pytest.raises(torchcomms.InvalidArgument, match="0 to 3"):
        window.signal(4, False)
    with pytest.raises(RuntimeError, match="-1000 ms"):
        window.wait_signal(0, False, timeout=-1.0)
    unified = TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
    assert window.get_attr(2).access_type == unified
    assert window.map_remote_tensor(2) is tensor
    assert window.get_tensor(1, [2, 2], torch.float32, 0).shape == (2, 2)
    window.tensor_deregister()
    assert comm.window_allocate(16).get_size() == 16


@pytest.fixture
def window():
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "wrongly_called")
    return comm.new_window(torch.zeros(4))


def calls_of(window, async_op=False, **options):
    """All forms of a window's operations, by method."""
    equal = torchcomms.SignalCmpOp.EQ
    return [
        ("put", lambda: window.put(torch.ones(1), 0, 0, async_op, **options)),
        ("put", lambda: window.put(torch.ones(1), 0, target_disp=0, async_op=async_op, **options)),
        ("signal", lambda: window.signal(0, async_op, **options)),
        ("signal", lambda: window.signal(0, 1, 0, async_op, **options)),
        ("wait_signal", lambda: window.wait_signal(0, async_op, **options)),
        ("wait_signal", lambda: window.wait_signal(0, 1, equal, async_op, **options)),
    ]


@pytest.mark.parametrize("value", [None, "x", "", [], [0], 0.5, torch.tensor(True)], ids=repr)
def test_async_op_of_a_window_is_anything_with_a_truth_value(window, value):
    for _, call in calls_of(window, value, hints={"any": "thing"}, timeout=5.0):
        assert call().is_completed()


def test_async_op_of_a_window_without_a_truth_value_raises_what_it_raises(window):
    class Undecided:
        def __bool__(self):
            raise KeyError("no idea")

    for _, call in calls_of(window, Undecided()):
        with pytest.raises(KeyError, match="no idea"):
            call()


@pytest.mark.parametrize(
    ("hints", "seen"), [({"a": 1}, "int 1"), ({2: "a"}, "int 2"), ("a", "str"), (5, "int 5")]
)
def test_wrong_hints_of_a_window_are_named(window, hints, seen):
    for method, call in calls_of(window, hints=hints):
        with refused(TypeError, f"{method}()", "'hints'", "dict[str, str] or None", f"not {seen}"):
            call()
