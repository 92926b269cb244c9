"""The call that torch.distributed makes when it routes its groups here."""

from __future__ import annotations

import gc

import pytest
import torch
import torchcomms
from torch.distributed import PrefixStore
from torchcomms import ReduceOp

from tests.harness.cases import assert_alive, check_context
from tests.harness.environment import environment

pytestmark = pytest.mark.worlds(data=False)


def torch_style(context, group, member_rank, member_count):
    """A group-named, prefixed, persistent store; the place in the group only during the call."""
    store = PrefixStore("cpu/", PrefixStore(f"{group}/", context.store("c10d")))
    with environment(TORCHCOMM_RANK=str(member_rank), TORCHCOMM_SIZE=str(member_count)):
        return torchcomms.new_comm(
            context.backend,
            torch.device("cpu"),
            name=group,
            store=store,
            hints={"persistent_store": "true"},
        )


def made_and_made_again(context):
    """Names are "0", "1", ... and come again after a destroy and another init."""
    for group in ("0", "1", "f" * 40, "0", "0"):
        comm = torch_style(context, group, context.rank, context.size)
        assert (comm.get_rank(), comm.get_size()) == (context.rank, context.size)
        if context.row.moves_data:
            assert_alive(comm)
        comm.finalize()
    return []


def test_groups_are_made_with_a_name_a_store_and_hints(world):
    check_context(world, made_and_made_again)


def members_only(context):
    """Those that are no members make no call."""
    if context.rank == 0:
        return []
    comm = torch_style(context, "without_rank_0", context.rank - 1, context.size - 1)
    tensor = torch.ones(1)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    assert tensor.item() == context.size - 1
    comm.finalize()
    return []


@pytest.mark.worlds(sizes=(2, 3, 4))
def test_creation_involves_members_only(world):
    check_context(world, members_only)


def several_alive(context):
    comms = [torch_style(context, group, context.rank, context.size) for group in "abc"]
    if context.row.moves_data:
        for comm in comms:
            assert_alive(comm)
    for comm in comms:
        comm.finalize()
    return []


def test_several_groups_share_the_store(world):
    check_context(world, several_alive)


def dropped(context):
    """On failure torch lets the reference go, and nothing else."""
    comm = torch_style(context, "dropped", context.rank, context.size)
    del comm
    gc.collect()
    if context.row.moves_data:
        assert_alive(context.comm)
    return []


def test_a_communicator_may_be_dropped_without_finalize(world):
    check_context(world, dropped)
