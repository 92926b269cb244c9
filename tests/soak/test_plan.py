"""The plan is a pure function: the same terms give the same step, on every rank, in any order."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from torchcomms.soak.calls import arguments, messages
from torchcomms.soak.lives import SLOTS, lives, parent_of
from torchcomms.soak.plan import (
    BITWISE,
    COMMON,
    DTYPES,
    OPERATIONS,
    REDUCING,
    Terms,
    Traits,
    is_defined,
    step,
)

from tests.harness.programs import forked

REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG", *BITWISE, "PREMUL_NUMBER", "PREMUL_TENSOR")
WISHES = (("all_reduce", (("algorithm", ("ring", "tree")), ("chunk_bytes", ("0", "64")))),)
FREE = Traits(REDUCTIONS, tuple(DTYPES), True, True, 1, False, True, WISHES)
GPU = Traits(REDUCTIONS[:5], COMMON, True, False, 4, True, False)
STEPS = range(400)


def terms(traits=FREE, seed=1, ranks=3, most_bytes=1 << 20) -> Terms:
    return Terms(seed, ranks, most_bytes, traits)


ALL = [terms(traits, ranks=ranks) for traits in (FREE, GPU) for ranks in (1, 2, 3, 8)]


def test_a_step_needs_no_step_before_it():
    forwards = [step(terms(), number) for number in STEPS]
    random.seed(7)  # the global one is nobody's
    backwards = [step(terms(), number) for number in reversed(STEPS)]
    assert forwards == backwards[::-1]
    assert len({repr(one) for one in forwards}) == len(forwards)
    assert forwards != [step(terms(seed=2), number) for number in STEPS]


def test_another_process_makes_the_same_plan():
    """Hashes of texts differ from process to process; the plan must not."""
    program = """
        from torchcomms.soak.lives import lives
        from torchcomms.soak.plan import Terms, Traits, step

        terms = eval(input())
        print([step(terms, number) for number in range(20)], lives(1, 3, 99))
    """
    done = forked(program, stdin=f"{terms()}\n").expect_success()
    assert done.out.strip() == f"{[step(terms(), n) for n in range(20)]} {lives(1, 3, 99)}"


@pytest.mark.parametrize("of", ALL, ids=lambda t: f"{t.traits.streams}-{t.ranks}")
def test_ranks_agree_about_the_order_in_every_communicator(of):
    for number in STEPS:
        due = step(of, number)
        indices = list(range(len(due.operations)))
        assert len(due.orders) == of.ranks
        assert sorted(due.waits) == indices
        for slot in range(SLOTS):
            orders = {
                tuple(i for i in order if due.operations[i].slot == slot) for order in due.orders
            }
            assert len(orders) == 1
        for order in due.orders:
            assert sorted(order) == indices
        if len(set(due.orders)) > 1:
            assert of.traits.free_order
            assert all(op.async_op for op in due.operations)


@pytest.mark.parametrize("of", ALL, ids=lambda t: f"{t.traits.streams}-{t.ranks}")
def test_steps_keep_to_what_the_backend_can(of):
    traits = of.traits
    for op in itertools.chain.from_iterable(step(of, n).operations for n in STEPS):
        assert op.stream < traits.streams
        assert op.wait_stream < traits.streams
        if op.name in REDUCING:
            assert op.reduction in traits.reductions
            assert op.dtype in traits.dtypes
            assert is_defined(op.reduction, op.dtype)
        else:
            assert op.reduction == ""
    replays = [step(of, n).replays for n in STEPS]
    assert any(replays) == traits.graphs


def test_no_rank_alone_has_a_graph_where_it_cannot():
    terms = Terms(5, 2, 1 << 16, replace(GPU, graphs_alone=False))
    steps = [step(terms, number) for number in range(2000)]
    alone = [
        any(
            len(group) == 1
            for called in one.operations
            for group in lives(5, 2, one.number)[called.slot].groups
        )
        for one in steps
    ]
    assert any(one.replays for one in steps)
    assert any(alone)
    assert not any(one.replays for one, is_alone in zip(steps, alone, strict=True) if is_alone)


def test_steps_have_everything():
    """In some hundred steps there is every operation, reduction and dtype; nothing is too large."""
    operations = [op for n in STEPS for op in step(terms(), n).operations]
    names = Counter(op.name for op in operations)
    assert names.keys() == set(OPERATIONS)
    assert min(names.values()) * 4 > max(names.values())
    assert {op.reduction for op in operations} == {"", *REDUCTIONS}
    assert {op.dtype for op in operations} == set(DTYPES)
    numels = Counter(op.numel for op in operations if op.name != "barrier")
    assert numels[0] > 20
    assert numels[1] > 20
    assert max(numels) > 1 << 14
    assert any(op.offset % 2 for op in operations)
    assert {op.async_op for op in operations} == {False, True}
    assert {op.in_place for op in operations} == {False, True}
    assert {op.hints for op in operations if op.name != "all_reduce"} == {()}
    assert {op.hints for op in operations} >= {
        (), (("algorithm", "tree"),), (("algorithm", "ring"), ("chunk_bytes", "64"))
    }  # fmt: skip
    assert len({len(step(terms(), n).operations) for n in STEPS}) > 8
    assert {s.kind for n in STEPS for s in step(terms(), n).stragglers} == {"host", "device"}
    for n in STEPS:
        sizes = [
            sum(piece.numel for pieces in arguments(op, 0, 3).values() for piece in pieces)
            * DTYPES[op.dtype]
            for op in step(terms(), n).operations
        ]
        assert sum(sizes) < 4 * (1 << 20)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_what_ranks_give_is_what_ranks_get(size):
    """Every segment that a rank is to have is one that its origin has given, of the same length."""
    for op in (op for n in STEPS for op in step(terms(ranks=8), n).operations):
        every = [arguments(op, rank, size) for rank in range(size)]
        given = [
            segment
            for one in every
            for pieces in one.values()
            for piece in pieces
            for segment in piece.before
            if segment.kind == "given"
        ]
        for rank, one in enumerate(every):
            for piece in itertools.chain.from_iterable(one.values()):
                for segment in piece.after or ():
                    if segment.kind == "given":
                        assert segment in given
                    elif segment.kind == "reduced":
                        sources = {(s.rank, s.numel) for s in given if s.part == segment.part}
                        assert sources == {(r, segment.numel) for r in range(size)}
            if op.messages or op.name == "ring":
                ends = [m.src for m in messages(op, size)] + [m.dst for m in messages(op, size)]
                tensors = sum(len(pieces) for pieces in one.values())
                assert tensors == ends.count(rank)


def test_communicators_come_and_go_one_after_the_other():
    before = None
    seen = set()
    for number in range(1500):
        due = lives(3, 4, number)
        assert [life.slot for life in due] == list(range(SLOTS))
        for life in due:
            assert life.born <= number < life.ends
            members = [rank for group in life.groups for rank in group]
            assert len(set(members)) == len(members) > 0
            assert set(members) <= set(range(4))
            if life.parent is not None:
                parent = parent_of(3, 4, life)
                assert parent.born <= life.born < parent.ends
        if before is not None:
            for old, new in zip(before, due, strict=True):
                assert (old == new) == (number < old.ends)
        before = due
        seen |= set(due)
    assert len({life.name for life in seen}) == len(seen) > 60
    assert {len(life.groups) for life in seen} == {1, 2}
    assert any(list(g) != sorted(g) for life in seen for g in life.groups), "orders are free"
