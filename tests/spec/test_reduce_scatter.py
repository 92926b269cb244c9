"""What reduce_scatter means: rank r gets the reduction of everyone's slot r."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_reduction, every_shape, finish, large_reductions
from tests.harness.guarded import Guarded
from tests.harness.values import assert_reduced, reduce_op, reference, sample


def scatters(comm, op, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    slots = [Guarded(shape, dtype, sample(rank, dtype, shape, salt=slot)) for slot in range(size)]
    output = Guarded(shape, dtype)
    work = comm.reduce_scatter(
        output.tensor, [s.tensor for s in slots], reduce_op(op, rank, dtype), async_op
    )
    finish(work, async_op)
    want = reference(op, [sample(r, dtype, shape, salt=rank) for r in range(size)])
    assert_reduced(output.tensor, want, op, size)
    output.check()
    for slot, guarded in enumerate(slots):
        guarded.check_unchanged(sample(rank, dtype, shape, salt=slot))


def sums(comm, dtype, shape, async_op):
    scatters(comm, "sum", dtype, shape, async_op)


@pytest.mark.parametrize("mode", MODES)
def test_rank_r_gets_the_reduction_of_slot_r_and_inputs_stay(world, mode):
    check(world, every_reduction, scatters, mode)


def test_a_million_elements_are_reduced(world):
    check(world, large_reductions, scatters)


def test_tensors_of_any_shape_are_reduced(world):
    check(world, every_shape, sums)
