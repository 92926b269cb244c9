"""The process worlds themselves: a rank that raises, dies or hangs is named, and nothing waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from tests.harness.backends import Backend
from tests.harness.native_stacks import native_stacks
from tests.harness.world import RanksFailed, World, Worlds

_ROW = Backend("gloo")


def whoami(context):
    return context.rank, context.size, os.getpid()


def raise_on(context, rank):
    if context.rank == rank:
        raise ValueError(f"rank {rank} was told to")


def hang_on(context, rank):
    if context.rank == rank:
        threading.Event().wait()


def die_on(context, rank):
    if context.rank == rank:
        os._exit(17)


@pytest.fixture(autouse=True)
def no_debugger(monkeypatch):
    """Which may take longer than these tests allow."""
    monkeypatch.setattr("tests.harness.native_stacks.DEBUGGERS", ("no-such-debugger",))


@pytest.fixture
def fresh(worlds: Worlds) -> Iterator[World]:
    world = worlds.fresh(_ROW, 3)
    yield world
    world.kill()


def test_results_come_in_rank_order_and_processes_are_reused(fresh):
    first, second = fresh.run_context(whoami), fresh.run_context(whoami)
    assert [(rank, size) for rank, size, _ in first] == [(0, 3), (1, 3), (2, 3)]
    assert first == second


def test_an_exception_names_its_rank_and_carries_the_traceback(fresh):
    with pytest.raises(RanksFailed, match=r"(?s)raise_on failed on gloo-3.*rank 1 raised.*told to"):
        fresh.run_context(raise_on, 1)


def test_a_dead_rank_is_named_with_its_exit_code(fresh):
    with pytest.raises(RanksFailed, match=r"(?s)rank 2 raised.*died, exit code 17"):
        fresh.run_context(die_on, 2)


def test_a_hung_rank_is_named_with_its_stack_and_the_others_are_not_blamed(fresh):
    began = time.monotonic()
    with pytest.raises(RanksFailed) as caught:
        fresh.run_context(hang_on, 1, deadline=1.0)
    assert time.monotonic() - began < 30
    assert "ranks [1] had not finished after 1 s" in str(caught.value)
    assert "in hang_on" in str(caught.value), "the stack of the hung rank is missing"
    assert "rank 0 was here" not in str(caught.value)


def test_a_debugger_says_where_a_hung_rank_is_below_python(fresh, tmp_path, monkeypatch):
    debugger = tmp_path / "cuda-gdb"
    debugger.write_text('#!/bin/sh\necho "[New LWP 1]"\necho "#0  futex_wait of process $2"\n')
    debugger.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr("tests.harness.native_stacks.DEBUGGERS", ("cuda-gdb",))
    with pytest.raises(RanksFailed) as caught:
        fresh.run_context(hang_on, 1, deadline=1.0)
    assert "#0  futex_wait of process " in str(caught.value)
    assert "New LWP" not in str(caught.value)


def test_without_a_debugger_it_is_said_that_there_is_none():
    assert "none of no-such-debugger is installed" in native_stacks(os.getpid())


def test_ranks_stuck_behind_a_failed_one_do_not_wait_for_the_deadline(fresh):
    began = time.monotonic()
    with pytest.raises(RanksFailed, match=r"ranks \[0\] had not finished when another rank had"):
        fresh.run_context(_raise_on_2_and_hang_on_0, deadline=300.0)
    assert time.monotonic() - began < 60


def _raise_on_2_and_hang_on_0(context):
    raise_on(context, 2)
    hang_on(context, 0)


def test_the_next_user_of_a_failed_world_gets_a_new_one(worlds):
    before = worlds.get(_ROW, 2)
    with pytest.raises(RanksFailed):
        before.run_context(raise_on, 0)
    after = worlds.get(_ROW, 2)
    assert after is not before
    assert [rank for rank, _, _ in after.run_context(whoami)] == [0, 1]
    assert worlds.get(_ROW, 2) is after
