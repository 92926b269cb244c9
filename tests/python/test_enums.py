"""The enumerations: names, values, and what they are equal to."""

from __future__ import annotations

import pytest
import torchcomms

MEMBERS = {
    "RedOpType": ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM", "AVG"],
    "WorkStatus": ["NOT_STARTED", "INPROGRESS", "COMPLETED", "TIMEDOUT", "ERROR"],
    "OpName": [
        "send", "recv", "broadcast", "all_reduce", "reduce", "all_gather", "all_gather_v",
        "all_gather_single", "reduce_scatter", "reduce_scatter_v", "reduce_scatter_single",
        "all_to_all_single", "all_to_all_v_single", "all_to_all", "barrier", "scatter", "gather",
        "gather_single", "split", "new_window", "batch_op_issue", "finalize"],
    "TorchCommWinAccessType": ["WIN_ACCESS_TYPE_UNIFIED", "WIN_ACCESS_TYPE_SEPARATE"],
    "P2POpType": ["SEND", "RECV"],
    "SignalCmpOp": ["EQ", "GE", "LE"],
}  # fmt: skip


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_are_numbered_in_order(kind):
    enum = getattr(torchcomms, kind)
    assert list(enum.__members__) == MEMBERS[kind]
    for value, name in enumerate(MEMBERS[kind]):
        member = getattr(enum, name)
        assert (member.name, member.value, int(member)) == (name, value, value)
        assert str(member).endswith(f".{name}")


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_are_hashable_and_equal_to_their_own_kind_only(kind):
    members = list(getattr(torchcomms, kind).__members__.values())
    assert len(set(members)) == len(members)
    assert members[0] == members[0]
    assert members[0] != members[1]
    assert (members[0] == 0) is False
    assert (members[0] == "SUM") is False
    others = [getattr(torchcomms, other) for other in MEMBERS if other != kind]
    assert all(members[0] != other(0) for other in others)
