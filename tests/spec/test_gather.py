"""What gather means: slot i of the root's list is rank i's tensor."""

from __future__ import annotations

import pytest
import torch

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import sample


def gathers_to(comm, root, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    own = Guarded(shape, dtype, sample(rank, dtype, shape, salt=root))
    slots = [Guarded(shape, dtype) for _ in range(size)] if rank == root else []
    finish(comm.gather([s.tensor for s in slots], own.tensor, root, async_op), async_op)
    for r, slot in enumerate(slots):
        slot.check_unchanged(sample(r, dtype, shape, salt=root))
    own.check_unchanged(sample(rank, dtype, shape, salt=root))


def gathers_to_every_root(comm, dtype, shape, async_op):
    for root in range(comm.get_size()):
        gathers_to(comm, root, dtype, shape, async_op)


@pytest.mark.parametrize("mode", MODES)
def test_slot_i_of_the_roots_list_is_rank_is_tensor_for_every_root(world, mode):
    check(world, every_move, gathers_to_every_root, mode)


def test_a_million_elements_are_gathered(world):
    check(world, large_moves, gathers_to_every_root)


@pytest.mark.crowd
def test_tensors_of_any_shape_are_gathered(world):
    check(world, every_shape, gathers_to_every_root)


def gather_with_lists_everywhere(comm):
    slots = [torch.full((3,), -1.0) for _ in range(comm.get_size())]
    comm.gather(slots, torch.full((3,), float(comm.get_rank())), 0, False)
    return [slot[0].item() for slot in slots]


def test_lists_of_other_ranks_stay_untouched(world):
    root, *others = world.run(gather_with_lists_everywhere)
    assert root == [float(r) for r in range(world.size)]
    assert all(values == [-1.0] * world.size for values in others)
