"""What reduce_scatter_single means: rank r gets the reduction of everyone's r-th chunk."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_reduction, every_shape, finish, large_reductions
from tests.harness.guarded import Guarded
from tests.harness.values import assert_reduced, reduce_op, reference, sample


def scatters_chunks(comm, op, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    shape = (shape,) if isinstance(shape, int) else shape
    inputs = [sample(r, dtype, (size, *shape)) for r in range(size)]
    own = Guarded((size, *shape), dtype, inputs[rank])
    output = Guarded(shape, dtype)
    work = comm.reduce_scatter_single(
        output.tensor, own.tensor, reduce_op(op, rank, dtype), async_op
    )
    finish(work, async_op)
    want = reference(op, [chunks[rank].clone() for chunks in inputs])
    assert_reduced(output.tensor, want, op, size)
    output.check()
    own.check_unchanged(inputs[rank])


def sums(comm, dtype, shape, async_op):
    scatters_chunks(comm, "sum", dtype, shape, async_op)


@pytest.mark.parametrize("mode", MODES)
def test_rank_r_gets_the_reduction_of_chunk_r_and_the_input_stays(world, mode):
    check(world, every_reduction, scatters_chunks, mode)


def test_a_million_elements_are_reduced(world):
    check(world, large_reductions, scatters_chunks)


@pytest.mark.crowd
def test_shapes_do_not_matter(world):
    check(world, every_shape, sums)
