"""The value types of windows; the windows themselves come with backends that have them."""

from __future__ import annotations

import pytest
import torchcomms
from torchcomms import TorchCommWinAccessType, TorchCommWindow, TorchCommWindowAttr


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
