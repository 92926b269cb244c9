"""What reduce means: the reduction of every rank's tensor, in the root's tensor."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_reduction, every_shape, finish, large_reductions
from tests.harness.guarded import Guarded
from tests.harness.values import assert_reduced, reduce_op, reference, sample


def reduces_to_a_root(comm, op, dtype, shape, async_op, root=None):
    rank, size = comm.get_rank(), comm.get_size()
    root = size - 1 if root is None else root
    inputs = [sample(r, dtype, shape) for r in range(size)]
    buffer = Guarded(shape, dtype, inputs[rank])
    work = comm.reduce(buffer.tensor, root, reduce_op(op, rank, dtype), async_op)
    finish(work, async_op)
    if rank == root:
        assert_reduced(buffer.tensor, reference(op, inputs), op, size)
    buffer.check()


def sums(comm, dtype, shape, async_op):
    for root in range(comm.get_size()):
        reduces_to_a_root(comm, "sum", dtype, shape, async_op, root)


@pytest.mark.parametrize("mode", MODES)
def test_the_root_gets_the_reduction_of_all_inputs(world, mode):
    check(world, every_reduction, reduces_to_a_root, mode)


def test_a_million_elements_are_reduced(world):
    check(world, large_reductions, reduces_to_a_root)


@pytest.mark.crowd
def test_shapes_do_not_matter_and_every_rank_can_be_root(world):
    check(world, every_shape, sums)
