"""What all_gather_single means: every rank's input, in rank order, in one output."""

from __future__ import annotations

import pytest
import torch

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample


def concatenates(comm, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    own = Guarded(shape, dtype, sample(rank, dtype, shape))
    output = Guarded((size, *shape), dtype)
    finish(comm.all_gather_single(output.tensor, own.tensor, async_op), async_op)
    for r in range(size):
        assert_same_bits(output.tensor[r], sample(r, dtype, shape))
    output.check()
    own.check_unchanged(sample(rank, dtype, shape))


@pytest.mark.parametrize("mode", MODES)
def test_the_output_holds_every_input_in_rank_order(world, mode):
    check(world, every_move, concatenates, mode)


def test_a_million_elements_are_gathered(world):
    check(world, large_moves, concatenates)


@pytest.mark.crowd
def test_shapes_do_not_matter(world):
    check(world, every_shape, concatenates)


def gather_in_place(comm):
    rank, size = comm.get_rank(), comm.get_size()
    output = torch.zeros(size * 5)
    output[rank * 5 : rank * 5 + 5] = sample(rank, torch.float32, 5)
    comm.all_gather_single(output, output[rank * 5 : rank * 5 + 5], False)
    return output


def test_the_input_may_be_its_own_slot_of_the_output(world):
    want = torch.cat([sample(r, torch.float32, 5) for r in range(world.size)])
    for got in world.run(gather_in_place):
        assert_same_bits(got, want)
