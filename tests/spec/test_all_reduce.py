"""What all_reduce means: in place, the same reduction of every rank's tensor on every rank."""

from __future__ import annotations

import pytest
import torch
from torchcomms import ReduceOp

from tests.harness.cases import MODES, check, every_reduction, every_shape, finish, large_reductions
from tests.harness.guarded import Guarded
from tests.harness.values import FLOATS, assert_reduced, generator, reduce_op, reference, sample


def reduces(comm, op, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    inputs = [sample(r, dtype, shape) for r in range(size)]
    buffer = Guarded(shape, dtype, inputs[rank])
    finish(comm.all_reduce(buffer.tensor, reduce_op(op, rank, dtype), async_op), async_op)
    assert_reduced(buffer.tensor, reference(op, inputs), op, size)
    buffer.check()


def sums(comm, dtype, shape, async_op):
    reduces(comm, "sum", dtype, shape, async_op)


@pytest.mark.parametrize("mode", MODES)
def test_every_rank_gets_the_reduction_of_all_inputs(world, mode):
    """out[r] == op(in[0], ..., in[size-1]) for every defined dtype and op; numel 0 is legal."""
    check(world, every_reduction, reduces, mode)


def test_a_million_elements_are_reduced(world):
    check(world, large_reductions, reduces)


@pytest.mark.crowd
def test_shapes_do_not_matter(world):
    check(world, every_shape, sums)


def reduced_bits(comm, dtype):
    """Reduces numbers of very different magnitude, where the order of additions shows."""
    rank = comm.get_rank()
    magnitude = 10.0 ** (rank % 4 * 2)
    data = torch.randn(4099, generator=generator(rank), dtype=torch.float64) * magnitude
    results = []
    for _ in range(3):
        tensor = data.to(dtype)
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        results.append(tensor)
    return results


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_result_has_the_same_bits_on_every_rank_and_in_every_run(world, dtype):
    results = [tensor for rank in world.run(reduced_bits, dtype) for tensor in rank]
    for other in results[1:]:
        assert torch.equal(other.view(torch.uint8), results[0].view(torch.uint8))


def reduce_infinities(comm):
    tensor = torch.tensor([1.0, float("inf"), -float("inf"), 3.0]) * (comm.get_rank() + 1)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    return tensor


def test_infinities_travel_unharmed(world):
    total = sum(range(1, world.size + 1))
    for got in world.run(reduce_infinities):
        assert got.tolist() == [total, float("inf"), -float("inf"), 3.0 * total]
