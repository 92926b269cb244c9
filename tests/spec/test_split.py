"""What split means: a communicator of the listed ranks, in the order listed."""

from __future__ import annotations

import gc
import json
import time
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import FlightRecorderHook

from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.environment import environment

several = pytest.mark.worlds(sizes=(2, 3, 4))


def total(comm, value):
    tensor = torch.tensor([float(value)])
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    return tensor.item()


def halves(context):
    comm, half = context.comm, max(1, context.size // 2)
    low, high = list(range(half)), list(range(half, context.size))
    mine = low if context.rank < half else high
    child = comm.split(mine, "half")
    failures = Failures()
    with failures.case("members"):
        assert (child.get_rank(), child.get_size()) == (mine.index(context.rank), len(mine))
    with failures.case("sum of members"):
        assert total(child, context.rank) == sum(mine)
    with failures.case("parent"):
        assert_alive(comm)
    with failures.case("backend and device"):
        assert child.get_backend() == comm.get_backend()
        assert child.get_device() == comm.get_device()
    with failures.case("name"):
        assert child.get_name() == f"half_{min(mine)}"
    child.finalize()
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(backends=("gloo", "ctran"))
def test_each_half_becomes_a_communicator_of_its_own(world):
    """The child is called after the smallest rank in it."""
    check_context(world, halves)


def reordered(context):
    ranks = list(reversed(range(context.size)))
    child = context.comm.split(ranks, "reversed")
    failures = Failures()
    with failures.case("rank"):
        assert child.get_rank() == context.size - 1 - context.rank
    tensor = torch.tensor([float(context.rank)])
    child.broadcast(tensor, 0, False)
    with failures.case("root 0 is the last rank"):
        assert tensor.item() == context.size - 1
    child.finalize()
    return failures.texts


@pytest.mark.crowd
def test_the_childs_ranks_are_positions_in_the_list(world):
    check_context(world, reordered)


def excluded(context):
    """Only listed ranks need a list; the others say [] and get None."""
    comm, last = context.comm, context.size - 1
    fired = []
    before = comm.register_pre_hook(lambda name, op_id, args: fired.append("pre"))
    after = comm.register_post_hook(lambda op_id, args: fired.append("post"))
    child = comm.split([0, last] if context.rank in (0, last) else [], "ends")
    before.remove()
    after.remove()
    if context.rank not in (0, last):
        return child is None, fired
    result = total(child, context.rank) == last
    child.finalize()
    return result, fired


@several
def test_a_rank_that_passes_no_list_gets_none_and_no_post_hook(world):
    for rank, (good, fired) in enumerate(world.run_context(excluded)):
        assert good
        assert fired == (["pre", "post"] if rank in (0, world.size - 1) else ["pre"])


def all_excluded(context):
    return context.comm.split([], "nobody")


@pytest.mark.worlds(sizes=(1, 2))
def test_everybody_may_pass_an_empty_list(world):
    assert world.run_context(all_excluded) == [None] * world.size


def only_listed(context):
    """Ranks that are not listed need not take part at all."""
    comm = context.comm  # on all ranks: the first test of a world makes it
    if context.rank == context.size - 1:
        return True
    child = comm.split(list(range(context.size - 1)), "without_the_last")
    good = total(child, 1) == context.size - 1
    child.finalize()
    return good


@pytest.mark.worlds(sizes=(2, 3, 4), needs=("split_among_listed",))
def test_only_the_listed_ranks_take_part(world):
    assert all(world.run_context(only_listed))
    world.run(assert_alive)


def numbered(context):
    """The last rank stays away from a split, and calls the next, and a barrier."""
    comm = context.new_comm()
    hook = FlightRecorderHook(16, isolated=True)
    hook.register_with_comm(comm)
    last = context.size - 1
    lists = [list(range(last)), list(range(context.size))]
    children = [comm.split(ranks, "child") for ranks in lists if context.rank in ranks]
    comm.barrier(False)
    recorded = json.loads(hook.dump_json(True))["entries"]
    for each in (*children, comm):
        each.finalize()
    return [entry["collective_seq_id"] for entry in recorded if entry["operation"] == "barrier"]


@pytest.mark.worlds(sizes=(2, 3), needs=("split_among_listed",))
def test_those_who_need_not_split_count_later_collectives_as_the_others(world):
    assert world.run_context(numbered) == [[1]] * world.size


def wrong_lists(context):
    comm, failures, size = context.comm, Failures(), context.size
    if context.rank == 0:
        for ranks, fragments in (
            ([0, size], (size, "split")),
            ([-1, 0], (-1, "split")),
            ([0, 0], ("split", "twice")),
            ([1, 1], ("twice",)),  # duplicates are found before the missing own rank
            ([size, size], (size,)),  # the range is looked at first
            ([1], ("0",)),
        ):
            if size > 1 or ranks not in ([1], [1, 1]):
                with failures.case(ranks), refused(RuntimeError, *fragments):
                    comm.split(ranks, "wrong")
        for ranks in (["0"], [0.5], 3, "0", 2.5, [2**40]):
            allowed = f"'ranks' must be list[int] of ranks from 0 to {size - 1}"
            if isinstance(ranks, list):
                allowed = f"'ranks[0]' must be int from 0 to {size - 1}"
            with failures.case(repr(ranks)), refused(TypeError, "split()", allowed):
                comm.split(ranks, "wrong")
        for groups in (3, "0", [3], [["0"]]):
            with failures.case(repr(groups)), refused(TypeError, "split()", "'rank_groups"):
                comm.split(rank_groups=groups, name="wrong")
        with failures.case("neither"), refused(TypeError, "'ranks' or 'rank_groups'"):
            comm.split(None, "wrong")
        for name in (3, b"x"):
            with failures.case(repr(name)), refused(TypeError, "split()", "'name' must be str"):
                comm.split([0], name)
        for hints in (3, {"a": 1}, {1: "a"}):
            with failures.case(repr(hints)), refused(TypeError, "split()", "'hints", "str"):
                comm.split([0], "wrong", hints=hints)
        for limit in (3, "3"):
            with failures.case(repr(limit)), refused(TypeError, "split()", "float seconds"):
                comm.split([0], "wrong", timeout=limit)
    assert_alive(comm)
    return failures.texts


def test_lists_that_name_no_group_are_refused_and_create_nothing(world):
    check_context(world, wrong_lists)


def nested(context):
    comm, failures, depth = context.comm, Failures(), 0
    child, made = comm, []
    while child.get_size() > 1:
        size, rank = child.get_size(), child.get_rank()
        keep = list(range(size - 1))
        following = child.split(keep if rank in keep else [], f"level_{depth}")
        if following is None:
            break
        with failures.case("level", depth):
            assert (following.get_rank(), following.get_size()) == (rank, size - 1)
            assert total(following, 1) == size - 1
            assert following.get_backend() == comm.get_backend()
        made.append(following)
        child, depth = following, depth + 1
    for following in made:
        following.finalize()
    assert_alive(comm)
    return failures.texts


def test_children_can_be_split_again(world):
    check_context(world, nested)


def options_of_child(context):
    failures = Failures()
    parent = context.new_comm(
        timeout=timedelta(seconds=33),
        hints={"parent": "only"},
        abort_process_on_timeout_or_error=False,
    )
    everyone = list(range(context.size))
    child = parent.split(everyone, "plain")
    with failures.case("not inherited"):
        assert child.get_options().timeout == timedelta(seconds=600)
        assert "parent" not in child.get_options().hints
        assert child.get_options().abort_process_on_timeout_or_error is True
    child.finalize()
    child = parent.split(everyone, "given", hints={"child": "own"}, timeout=timedelta(seconds=44))
    with failures.case("given"):
        assert child.get_options().timeout == timedelta(seconds=44)
        assert child.get_options().hints["child"] == "own"
    with failures.case("gloo keeps the store"):
        assert child.get_options().hints["persistent_store"] == "true"
    child.finalize()
    with environment(TORCHCOMM_TIMEOUT_SECONDS="55", TORCHCOMM_ABORT_ON_ERROR="0"):
        child = parent.split(everyone, "environment")
    with failures.case("environment"):
        assert child.get_options().timeout == timedelta(seconds=55)
        assert child.get_options().abort_process_on_timeout_or_error is False
    child.finalize()
    parent.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("gloo",))
def test_a_childs_options_come_from_the_environment_and_the_call(world):
    check_context(world, options_of_child)


def same_name_twice(context):
    everyone = list(range(context.size))
    first = context.comm.split(everyone, "twin")
    second = context.comm.split(everyone, "twin")
    results = total(first, 1), total(second, 2)
    first.finalize()
    second.finalize()
    return results


def test_a_name_may_be_used_twice(world):
    n = float(world.size)
    assert world.run_context(same_name_twice) == [(n, 2 * n)] * world.size


def orphan(context):
    parent = context.new_comm()
    child = parent.split(list(range(context.size)), "orphan")
    parent.finalize()
    del parent
    gc.collect()
    results = total(child, 1)
    grandchild = child.split(list(range(context.size)), "grandchild")
    results += total(grandchild, 1)
    grandchild.finalize()
    child.finalize()
    return results


def test_a_child_outlives_its_parent(world):
    assert world.run_context(orphan) == [2.0 * world.size] * world.size


def after_finalize(context):
    parent = context.new_comm()
    parent.finalize()
    with refused(RuntimeError, "split"):
        parent.split(list(range(context.size)), "late")
    return []


@pytest.mark.worlds(sizes=(1, 2))
def test_a_finalized_communicator_is_not_split(world):
    check_context(world, after_finalize)


def while_busy(context):
    """A split while works of the parent are in flight."""
    comm = context.comm
    tensors = [torch.ones(1000) for _ in range(10)]
    works = [comm.all_reduce(t, ReduceOp.SUM, True) for t in tensors]
    child = comm.split(list(range(context.size)), "while_busy")
    result = total(child, 1)
    for work in works:
        work.wait()
    child.finalize()
    return result, {t[0].item() for t in tensors}


def test_a_busy_communicator_can_be_split(world):
    n = float(world.size)
    assert world.run_context(while_busy) == [(n, {n})] * world.size


def missing_member(context):
    """The last rank never splits: the others say so within the limit, naming it."""
    comm, last = context.new_comm(), context.size - 1
    context.meet("made")  # who leaves before that ends the new_comm() of others
    if context.rank == last:
        return []
    with refused(RuntimeError, "split"):
        comm.split(list(range(context.size)), "incomplete", timeout=timedelta(seconds=1))
    return []


@several
def test_a_member_that_never_splits_is_an_error_within_the_limit(world):
    check_context(world, missing_member)


def by_the_parents_limit(context):
    """Rank 0 alone splits a communicator whose limit is short, and says no limit itself."""
    comm, failures = context.new_comm(), Failures()
    context.meet("made")
    if context.rank == 0:
        comm.set_timeout(0.3)
        began = time.monotonic()
        with failures.case("limit"), refused(torchcomms.CommTimeout, "timeout"):
            comm.split(list(range(context.size)), "late")
        with failures.case("soon"):
            assert time.monotonic() - began < 20
    context.meet("timed out")
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ctran", "gloo", "nccl"), sizes=(2, 3), device="cpu")
def test_without_a_limit_of_its_own_a_split_waits_as_long_as_its_parent(world):
    check_context(world, by_the_parents_limit)


def wrong_hint(context):
    comm, failures = context.comm, Failures()
    with failures.case("named"), refused(RuntimeError, f"split on '{comm.get_name()}'", "maybe"):
        comm.split(list(range(context.size)), "hinted", hints={"check_calls": "maybe"})
    assert_alive(comm)
    return failures.texts


def test_a_wrong_hint_of_a_split_is_one_of_the_communicator_that_is_split(world):
    check_context(world, wrong_hint)


def many_children(context):
    children = [context.comm.split(list(range(context.size)), f"child_{i}") for i in range(20)]
    results = [total(child, i) for i, child in enumerate(children)]
    for child in reversed(children):
        child.finalize()
    return results


def test_many_children_coexist(world):
    want = [float(i * world.size) for i in range(20)]
    assert world.run_context(many_children) == [want] * world.size


def fake_split(context):
    """fake always gives a child, for an empty list too, and fires both hooks."""
    fired = []
    comm = context.new_comm()
    comm.register_pre_hook(lambda name, op_id, args: fired.append((str(name), list(args.ranks))))
    comm.register_post_hook(lambda op_id, args: fired.append(type(args).__name__))
    child = comm.split([], "empty")
    assert child is not None
    assert child.get_backend() == "fake"
    assert fired[0][0].endswith(".split")
    assert fired[0][1] == []
    assert fired[1] == "SplitPostHookArgs"
    assert comm.split([0], "one") is not None
    return []


@pytest.mark.worlds(backends=("fake",))
def test_fake_splits_always(world):
    check_context(world, fake_split)


def older_forms(context):
    comm, failures = context.comm, Failures()
    everyone, rank = list(range(context.size)), context.rank
    with failures.case("rank_groups with mine"):
        groups = [[r] for r in everyone]
        child = comm.split(rank_groups=groups, name="alone", hints=None, timeout=None)
        assert (child.get_rank(), child.get_size()) == (0, 1)
        assert total(child, rank) == rank
        child.finalize()
    with failures.case("rank_groups without mine"):
        child = comm.split(rank_groups=[[r for r in everyone if r != 0]], name="not_rank_0")
        assert (child is None) == (rank == 0)
        if child is not None:
            assert total(child, 1) == context.size - 1
            child.finalize()
    with failures.case("rank_groups in the place of ranks"):
        child = comm.split([everyone[:1], everyone[1:]], "in_place", None, None)
        assert child.get_size() == (1 if rank == 0 else context.size - 1)
        assert total(child, 1) == child.get_size()
        child.finalize()
    with failures.case("no name"):
        first, second = comm.split(everyone), comm.split(everyone)
        assert first.get_name() != second.get_name()
        assert first.get_name().startswith(comm.get_name())
        assert total(first, 1) == total(second, 1) == context.size
        first.finalize()
        second.finalize()
    with failures.case("both"), refused(TypeError):
        comm.split([0], rank_groups=[[0]], name="both")
    with failures.case("neither"), refused(TypeError):
        comm.split(name="neither")
    return failures.texts


@several
def test_the_older_forms_name_groups_or_leave_the_name_out(world):
    check_context(world, older_forms)


def named_differently(context):
    comm, failures = context.comm, Failures()
    everyone = list(range(context.size))
    name = "odd" if context.rank == 1 else "usual"
    if context.backend == "ctran":
        with (
            failures.case("told who gave which"),
            refused(torchcomms.Mismatch, "split", "'odd_0' by rank 1", "'usual_0' by rank"),
        ):
            comm.split(everyone, name)
    else:
        with (
            failures.case("told what the missing ranks were creating"),
            refused(torchcomms.CommTimeout, "was last seen creating"),
        ):
            comm.split(everyone, name, timeout=timedelta(seconds=1))
    with failures.case("afterwards"):
        child = comm.split(everyone, "same")
        assert total(child, 1) == context.size
        child.finalize()
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2, 3, 4))
def test_ranks_that_name_a_group_differently_are_told_and_go_on(world):
    check_context(world, named_differently)
