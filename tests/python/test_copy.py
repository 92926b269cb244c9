"""Copies of a communicator are the communicator."""

from __future__ import annotations

import copy


def test_copy_and_deepcopy_give_the_communicator_itself(comm):
    memo: dict[int, object] = {}
    assert copy.copy(comm) is comm
    assert copy.deepcopy(comm, memo) is comm
    assert memo[id(comm)] is comm


def test_a_structure_that_holds_a_communicator_can_be_copied(comm):
    holder = {"comm": comm, "list": [comm, 1]}
    again = copy.deepcopy(holder)
    assert again is not holder
    assert again["comm"] is comm
    assert again["list"][0] is comm
