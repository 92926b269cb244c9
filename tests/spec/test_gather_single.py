"""What gather_single means: every rank's input, in rank order, in the root's output."""

from __future__ import annotations

import pytest
import torch

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample


def concatenates_on_every_root(comm, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    for root in range(size):
        own = Guarded(shape, dtype, sample(rank, dtype, shape, salt=root))
        output = Guarded((size, *shape), dtype)
        before = output.tensor.clone()
        finish(comm.gather_single(output.tensor, own.tensor, root, async_op), async_op)
        if rank == root:
            for r in range(size):
                assert_same_bits(output.tensor[r], sample(r, dtype, shape, salt=root))
            output.check()
        else:
            output.check_unchanged(before)
        own.check_unchanged(sample(rank, dtype, shape, salt=root))


@pytest.mark.parametrize("mode", MODES)
def test_the_roots_output_holds_every_input_in_rank_order(world, mode):
    check(world, every_move, concatenates_on_every_root, mode)


def test_a_million_elements_are_gathered(world):
    check(world, large_moves, concatenates_on_every_root)


def test_shapes_do_not_matter(world):
    check(world, every_shape, concatenates_on_every_root)


def gather_into_nothing_elsewhere(comm):
    rank, size = comm.get_rank(), comm.get_size()
    output = torch.zeros(size, 4) if rank == size - 1 else torch.zeros(0)
    comm.gather_single(output, sample(rank, torch.float32, 4), size - 1, False)
    return output


def test_other_ranks_may_pass_an_output_of_any_size(world):
    *others, root = world.run(gather_into_nothing_elsewhere)
    want = torch.cat([sample(r, torch.float32, 4) for r in range(world.size)])
    assert_same_bits(root, want)
    assert all(output.numel() == 0 for output in others)
