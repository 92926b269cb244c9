"""What barrier means: on CPU, nobody leaves before everybody has entered."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from tests.harness.cases import MODES, finish, settle_device


def times_around_the_barrier(context, mode):
    """The last rank enters only when all others say that they are about to."""
    store, last = context.store("barrier_entries"), context.size - 1
    context.comm.barrier(False)  # connections exist: nothing but the barrier is timed
    if context.rank == last:
        for rank in range(last):
            store.wait([f"{mode}{rank}"], timedelta(seconds=30))
    before = time.monotonic()
    store.set(f"{mode}{context.rank}", "entering")
    finish(context.comm.barrier(mode == "async"), mode == "async")
    return before, time.monotonic()


@pytest.mark.parametrize("mode", MODES)
def test_nobody_leaves_before_everybody_entered(world, mode):
    times = world.run_context(times_around_the_barrier, mode)
    assert min(left for _, left in times) >= max(entered for entered, _ in times)


def many_barriers(comm):
    works = [comm.barrier(True) for _ in range(50)]
    for work in works:
        work.wait()
    settle_device()
    return [work.is_completed() for work in works]


@pytest.mark.crowd
def test_many_barriers_may_be_in_flight(world):
    assert world.run(many_barriers) == [[True] * 50] * world.size
