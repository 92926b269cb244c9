"""What all_gather_v means: as all_gather, with a size for each slot that all ranks agree on."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import sample


def uneven(shape, rank):
    """Different first dimensions by rank, one of them empty."""
    rows = shape[0] if shape else 1
    return ((rows, 0, rows + 3, 1)[rank % 4], *shape[1:])


def gathers_uneven(comm, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    shapes = [uneven(shape, r) for r in range(size)]
    own = Guarded(shapes[rank], dtype, sample(rank, dtype, shapes[rank]))
    slots = [Guarded(s, dtype) for s in shapes]
    finish(comm.all_gather_v([s.tensor for s in slots], own.tensor, async_op), async_op)
    for r, slot in enumerate(slots):
        slot.check_unchanged(sample(r, dtype, shapes[r]))
    own.check_unchanged(sample(rank, dtype, shapes[rank]))


@pytest.mark.parametrize("mode", MODES)
def test_slots_of_different_and_zero_sizes_are_gathered(world, mode):
    check(world, every_move, gathers_uneven, mode)


def test_a_million_elements_are_gathered(world):
    check(world, large_moves, gathers_uneven)


def test_tensors_of_any_shape_are_gathered(world):
    check(world, every_shape, gathers_uneven)
