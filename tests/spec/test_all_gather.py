"""What all_gather means: slot i of everyone's list is rank i's tensor."""

from __future__ import annotations

import pytest
import torch

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample


def gathers(comm, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    own = Guarded(shape, dtype, sample(rank, dtype, shape))
    slots = [Guarded(shape, dtype) for _ in range(size)]
    finish(comm.all_gather([s.tensor for s in slots], own.tensor, async_op), async_op)
    for r, slot in enumerate(slots):
        slot.check_unchanged(sample(r, dtype, shape))
    own.check_unchanged(sample(rank, dtype, shape))


@pytest.mark.parametrize("mode", MODES)
def test_slot_i_is_rank_is_tensor_on_every_rank(world, mode):
    check(world, every_move, gathers, mode)


def test_a_million_elements_are_gathered(world):
    check(world, large_moves, gathers)


def test_tensors_of_any_shape_are_gathered(world):
    check(world, every_shape, gathers)


def gather_into_other_shapes(comm):
    slots = [torch.zeros(3, 2) for _ in range(comm.get_size())]
    comm.all_gather(tuple(slots), sample(comm.get_rank(), torch.float32, (6,)), False)
    return slots


def test_slots_may_have_another_shape_of_the_same_numel_and_come_as_a_tuple(world):
    for slots in world.run(gather_into_other_shapes):
        for r, slot in enumerate(slots):
            assert slot.shape == (3, 2)
            assert_same_bits(slot, sample(r, torch.float32, (3, 2)))
