"""What all_to_all_v_single means: split sizes count rows of dimension 0, for each peer."""

from __future__ import annotations

import pytest
import torch

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample


def rows_between(source, target, most):
    """How many rows `source` sends to `target`: uneven, some zero, known to everybody."""
    return (source * 2 + target * 3 + source * target) % (most + 1)


def exchanges_rows(comm, dtype, shape, async_op, spare=0):
    """`spare` rows of both tensors belong to nobody and stay as they are."""
    rank, size = comm.get_rank(), comm.get_size()
    most, row = (shape[0], shape[1:]) if shape else (1, ())
    outgoing = [[rows_between(s, t, most) for t in range(size)] for s in range(size)]
    incoming = [outgoing[s][rank] for s in range(size)]
    inputs = [sample(s, dtype, (sum(outgoing[s]) + spare, *row)) for s in range(size)]
    own = Guarded(inputs[rank].shape, dtype, inputs[rank])
    marked = sample(7, dtype, (sum(incoming) + spare, *row))
    output = Guarded(marked.shape, dtype, marked)
    work = comm.all_to_all_v_single(output.tensor, own.tensor, incoming, outgoing[rank], async_op)
    finish(work, async_op)
    parts = [inputs[s].split([*outgoing[s], spare])[rank] for s in range(size)]
    assert_same_bits(output.tensor, torch.cat([*parts, marked[sum(incoming) :]]))
    output.check()
    own.check_unchanged(inputs[rank])


def exchanges_some_rows(comm, dtype, shape, async_op):
    exchanges_rows(comm, dtype, shape, async_op, spare=3)


@pytest.mark.parametrize("mode", MODES)
def test_uneven_and_zero_numbers_of_rows_reach_their_peer(world, mode):
    check(world, every_move, exchanges_rows, mode)


def test_a_million_rows_are_exchanged(world):
    check(world, large_moves, exchanges_rows)


@pytest.mark.crowd
def test_rows_may_have_any_shape(world):
    check(world, every_shape, exchanges_rows)


@pytest.mark.parametrize("mode", MODES)
def test_rows_beyond_the_sum_of_the_splits_stay_untouched(world, mode):
    check(world, every_move, exchanges_some_rows, mode)
    check(world, every_shape, exchanges_some_rows)


def exchanges_into_a_flat_tensor(comm):
    rank, size = comm.get_rank(), comm.get_size()
    outgoing = [[rows_between(s, t, 3) for t in range(size)] for s in range(size)]
    incoming = [outgoing[s][rank] for s in range(size)]
    inputs = [sample(s, torch.float32, (sum(outgoing[s]), 2, 2)) for s in range(size)]
    flat = torch.zeros(4 * sum(incoming))
    comm.all_to_all_v_single(
        flat, inputs[rank], [4 * rows for rows in incoming], outgoing[rank], False
    )
    parts = [inputs[s].split(outgoing[s])[rank].flatten() for s in range(size)]
    assert_same_bits(flat, torch.cat(parts))
    back = torch.zeros_like(inputs[rank])
    comm.all_to_all_v_single(back, flat, outgoing[rank], [4 * rows for rows in incoming], False)
    assert_same_bits(back, inputs[rank])


def test_rows_of_input_and_output_may_differ_in_size(world):
    world.run(exchanges_into_a_flat_tensor)


def exchange_nothing(comm):
    zeros = [0] * comm.get_size()
    output = torch.full((3, 2), 5.0)
    finish(comm.all_to_all_v_single(output, torch.ones(4, 2), zeros, zeros, False), False)
    return output


def test_all_splits_may_be_zero(world):
    for output in world.run(exchange_nothing):
        assert bool((output == 5).all())
