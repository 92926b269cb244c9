"""What broadcast means: the root's content, in place, everywhere."""

from __future__ import annotations

import pytest

from tests.harness.cases import MODES, check, every_move, every_shape, finish, large_moves
from tests.harness.guarded import Guarded
from tests.harness.values import assert_same_bits, sample


def copies_from_every_root(comm, dtype, shape, async_op):
    for root in range(comm.get_size()):
        buffer = Guarded(shape, dtype, sample(comm.get_rank(), dtype, shape, salt=root))
        finish(comm.broadcast(buffer.tensor, root, async_op), async_op)
        assert_same_bits(buffer.tensor, sample(root, dtype, shape, salt=root))
        buffer.check()


@pytest.mark.parametrize("mode", MODES)
def test_every_rank_gets_the_roots_content_for_every_root(world, mode):
    check(world, every_move, copies_from_every_root, mode)


def test_a_million_elements_are_copied(world):
    check(world, large_moves, copies_from_every_root)


@pytest.mark.crowd
def test_shapes_do_not_matter(world):
    check(world, every_shape, copies_from_every_root)
