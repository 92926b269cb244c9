"""What all_to_all_single means: chunk i of the input goes to rank i."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample


def exchanges(comm, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    own = Guarded((size, *shape), dtype, sample(rank, dtype, (size, *shape)))
    output = Guarded((size, *shape), dtype)
    finish(comm.all_to_all_single(output.tensor, own.tensor, async_op), async_op)
    for r in range(size):
        assert_same_bits(output.tensor[r], sample(r, dtype, (size, *shape))[rank])
    output.check()
    own.check_unchanged(sample(rank, dtype, (size, *shape)))


@pytest.mark.parametrize("mode", MODES)
def test_chunk_i_of_the_output_is_rank_is_chunk_for_me(world, mode):
    check(world, every_move, exchanges, mode)


def test_a_million_elements_are_exchanged(world):
    check(world, large_moves, exchanges)


@pytest.mark.crowd
def test_shapes_do_not_matter(world):
    check(world, every_shape, exchanges)
