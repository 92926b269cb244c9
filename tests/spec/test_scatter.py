"""What scatter means: rank i gets tensor i of the root's list."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import sample


def scatters_from(comm, root, dtype, shape, async_op):
    rank, size = comm.get_rank(), comm.get_size()
    inputs = []
    if rank == root:
        inputs = [Guarded(shape, dtype, sample(root, dtype, shape, salt=i)) for i in range(size)]
    output = Guarded(shape, dtype)
    finish(comm.scatter(output.tensor, [i.tensor for i in inputs], root, async_op), async_op)
    output.check_unchanged(sample(root, dtype, shape, salt=rank))
    for i, guarded in enumerate(inputs):
        guarded.check_unchanged(sample(root, dtype, shape, salt=i))


def scatters_from_every_root(comm, dtype, shape, async_op):
    for root in range(comm.get_size()):
        scatters_from(comm, root, dtype, shape, async_op)


@pytest.mark.parametrize("mode", MODES)
def test_rank_i_gets_tensor_i_of_the_roots_list_for_every_root(world, mode):
    check(world, every_move, scatters_from_every_root, mode)


def test_a_million_elements_are_scattered(world):
    check(world, large_moves, scatters_from_every_root)


@pytest.mark.crowd
def test_tensors_of_any_shape_are_scattered(world):
    check(world, every_shape, scatters_from_every_root)


def scatter_with_lists_everywhere(comm):
    import torch

    rank, size = comm.get_rank(), comm.get_size()
    # What other ranks pass is not looked at, whatever its length and sizes are.
    inputs = [torch.full((2,), 10.0 + i) for i in range(size)] if rank == 0 else [torch.ones(9)]
    output = torch.zeros(2)
    comm.scatter(output, inputs, 0, False)
    return output.tolist(), inputs[0].tolist()


def test_lists_of_other_ranks_are_ignored(world):
    for rank, (output, first) in enumerate(world.run(scatter_with_lists_everywhere)):
        assert output == [10.0 + rank] * 2
        assert first == ([10.0] * 2 if rank == 0 else [1.0] * 9)


def scatters_into_another_slot(comm):
    import torch

    rank, size = comm.get_rank(), comm.get_size()
    right = []
    for root in range(size):
        inputs = [torch.full((200_000,), 10.0 + i) for i in range(size)] if rank == root else []
        output = inputs[(root + 1) % size] if rank == root else torch.zeros(200_000)
        comm.scatter(output, inputs, root, False)
        right.append(bool((output == 10.0 + rank).all()))
    return right


def test_the_roots_output_may_be_another_slot_of_its_list(world):
    assert world.run(scatters_into_another_slot) == [[True] * world.size] * world.size
