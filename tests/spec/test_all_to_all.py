"""What all_to_all means: tensor i of the input list goes to rank i."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import sample


def exchanges_lists(comm, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    inputs = [Guarded(shape, dtype, sample(rank, dtype, shape, salt=to)) for to in range(size)]
    outputs = [Guarded(shape, dtype) for _ in range(size)]
    work = comm.all_to_all([o.tensor for o in outputs], [i.tensor for i in inputs], async_op)
    finish(work, async_op)
    for r, output in enumerate(outputs):
        output.check_unchanged(sample(r, dtype, shape, salt=rank))
    for to, guarded in enumerate(inputs):
        guarded.check_unchanged(sample(rank, dtype, shape, salt=to))


@pytest.mark.parametrize("mode", MODES)
def test_tensor_i_of_the_output_is_what_rank_i_had_for_me(world, mode):
    check(world, every_move, exchanges_lists, mode)


def test_a_million_elements_are_exchanged(world):
    check(world, large_moves, exchanges_lists)


def test_tensors_of_any_shape_are_exchanged(world):
    check(world, every_shape, exchanges_lists)
