"""What reduce_scatter_v means: as reduce_scatter, with a size for each slot."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_reduction, every_shape, finish, large_reductions
from tests.harness.guarded import Guarded
from tests.harness.values import assert_reduced, reduce_op, reference, sample

from .test_all_gather_v import uneven


def scatters_uneven(comm, op, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    shape = (shape,) if isinstance(shape, int) else shape
    shapes = [uneven(shape, r) for r in range(size)]
    slots = [
        Guarded(shapes[slot], dtype, sample(rank, dtype, shapes[slot], salt=slot))
        for slot in range(size)
    ]
    output = Guarded(shapes[rank], dtype)
    work = comm.reduce_scatter_v(
        output.tensor, [s.tensor for s in slots], reduce_op(op, rank, dtype), async_op
    )
    finish(work, async_op)
    want = reference(op, [sample(r, dtype, shapes[rank], salt=rank) for r in range(size)])
    assert_reduced(output.tensor, want, op, size)
    output.check()
    for slot, guarded in enumerate(slots):
        guarded.check_unchanged(sample(rank, dtype, shapes[slot], salt=slot))


def sums(comm, dtype, shape, async_op):
    scatters_uneven(comm, "sum", dtype, shape, async_op)


@pytest.mark.parametrize("mode", MODES)
def test_slots_of_different_and_zero_sizes_are_reduced(world, mode):
    check(world, every_reduction, scatters_uneven, mode)


def test_a_million_elements_are_reduced(world):
    check(world, large_reductions, scatters_uneven)


def test_tensors_of_any_shape_are_reduced(world):
    check(world, every_shape, sums)
