"""Collectives of groups of ranks in which the other ranks are relays: backend `rcclx`.

What each operation gives is held against plain arithmetic on what all ranks had.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, assert_alive, check_context, finish, refused

pytestmark = pytest.mark.worlds(backends=("rcclx",))
# By ranks: groups of all, of some with relays, of one, in another order, with ranks in common.
GROUPS = {
    2: ([[0, 1]], [[1, 0]], [[0], [1]], [[1]], []),
    3: ([[0, 1]], [[2, 0], [1]], [[2, 0], [0, 1, 2]], [[1], [0, 2]]),
    4: ([[0, 1], [2, 3]], [[3, 0]], [[2, 0, 1, 3]], [[1, 2], [0, 3], [2]], [[0, 1, 2], [3, 1]]),
}
COUNTS = (0, 1, 3, 8, 1001)
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)
OPS = {
    "sum": (ReduceOp.SUM, lambda rows: rows.sum(0)),
    "max": (ReduceOp.MAX, lambda rows: rows.amax(0)),
    "min": (ReduceOp.MIN, lambda rows: rows.amin(0)),
    "product": (ReduceOp.PRODUCT, lambda rows: rows.prod(0)),
    "avg": (ReduceOp.AVG, lambda rows: rows.sum(0) / rows.shape[0]),
}


def held(rank, group, numel, dtype, device):
    """Small whole numbers, so that every dtype has their sums exactly."""
    values = (torch.arange(numel) * 3 + rank * 5 + group) % 4
    return values.to(dtype).to(device)


def idle(dtype, device):
    """Of a group that this rank is not in."""
    return torch.full((2, 3), 9, dtype=dtype, device=device).t()


class Case:
    """The operands of one call, and what a rank must have after it."""

    def __init__(self, context, groups, numel, dtype):
        self.rank, self.groups, self.numel = context.rank, groups, numel
        self.dtype, self.device = dtype, context.device
        self.counts = [numel + g for g in range(len(groups))]

    def of(self, rank, group, times=1):
        return held(rank, group, self.counts[group] * times, self.dtype, self.device)

    def operands(self, make):
        """make(group number, ranks) where this rank takes part, else something to be left alone."""
        return [
            make(g, ranks) if self.rank in ranks else idle(self.dtype, self.device)
            for g, ranks in enumerate(self.groups)
        ]

    def empty(self, times):
        return self.operands(
            lambda g, ranks: torch.full(
                (self.counts[g] * times(ranks),), 77, dtype=self.dtype, device=self.device
            )
        )

    def check(self, outputs, expected):
        for g, ranks in enumerate(self.groups):
            wanted = expected(g, ranks) if self.rank in ranks else idle(self.dtype, self.device)
            assert torch.equal(outputs[g], wanted), (g, outputs[g], wanted)


def every_case(context):
    for groups in GROUPS[context.size]:
        for number, numel in enumerate(COUNTS):
            yield Case(context, groups, numel, DTYPES[number % len(DTYPES)])


def settle(work, async_op):
    if async_op:
        finish(work, True)
    else:
        assert work is None


def reduced(case, op, rows):
    """In float64, as the whole numbers are; averages of whole numbers are cut."""
    result = OPS[op][1](torch.stack(rows).double())
    return (
        result.trunc().to(case.dtype) if not case.dtype.is_floating_point else result.to(case.dtype)
    )


def all_reduces(context):
    relays, failures = context.comm.get_backend_impl(), Failures()
    for case in every_case(context):
        for op, (reduce_op, _) in OPS.items():
            for async_op in (False, True):
                with failures.case(case.groups, case.numel, case.dtype, op, async_op):
                    tensors = case.operands(lambda g, ranks: case.of(case.rank, g))  # noqa: B023
                    into = case.empty(lambda ranks: 1) if async_op else None
                    work = relays.sharded_relay_multi_group_all_reduce(
                        tensors, reduce_op, case.groups, case.counts, async_op, into
                    )
                    settle(work, async_op)
                    case.check(
                        tensors if into is None else into,
                        lambda g, ranks: reduced(case, op, [case.of(r, g) for r in ranks]),  # noqa: B023
                    )
    return failures.texts


def test_all_reduce_gives_every_rank_of_a_group_its_reduction(world):
    check_context(world, all_reduces)


def nans_of_all_ranks(context):
    """Each rank has a NaN in one place of every three more than there are ranks."""
    relays, failures = context.comm.get_backend_impl(), Failures()
    everybody, numel = list(range(context.size)), 1001
    place = torch.arange(numel) % (context.size + 3)
    for op, dtype in ((ReduceOp.MIN, torch.float32), (ReduceOp.MAX, torch.bfloat16)):
        with failures.case(op, dtype):
            tensor = torch.ones(numel, dtype=dtype)
            tensor[place == context.rank] = float("nan")
            tensor = tensor.to(context.device)
            relays.sharded_relay_multi_group_all_reduce([tensor], op, [everybody], [numel])
            assert torch.equal(tensor.isnan().cpu(), (place < context.size).cpu())
    return failures.texts


def test_minima_and_maxima_have_the_nan_of_any_rank(world):
    check_context(world, nans_of_all_ranks)


def reduce_scatters(context):
    relays, failures = context.comm.get_backend_impl(), Failures()
    for case in every_case(context):
        for op, async_op in (("sum", False), ("avg", True), ("max", True)):
            with failures.case(case.groups, case.numel, case.dtype, op, async_op):
                tensors = case.operands(lambda g, ranks: case.of(case.rank, g, len(ranks)))  # noqa: B023
                into = case.empty(lambda ranks: 1)
                work = relays.sharded_relay_multi_group_reduce_scatter(
                    tensors, into, OPS[op][0], case.groups, case.counts, async_op=async_op
                )
                settle(work, async_op)

                def expected(g, ranks, case=case, op=op):
                    whole = reduced(case, op, [case.of(r, g, len(ranks)) for r in ranks])
                    return (
                        whole.chunk(len(ranks))[ranks.index(case.rank)] if case.counts[g] else whole
                    )

                case.check(into, expected)
    return failures.texts


def test_reduce_scatter_gives_every_rank_of_a_group_its_part(world):
    check_context(world, reduce_scatters)


def all_to_alls(context):
    relays, failures = context.comm.get_backend_impl(), Failures()
    for case in every_case(context):
        for async_op in (False, True):
            with failures.case(case.groups, case.numel, case.dtype, async_op):
                tensors = case.operands(lambda g, ranks: case.of(case.rank, g, len(ranks)))  # noqa: B023
                into = case.empty(len)
                work = relays.sharded_relay_multi_group_all_to_all(
                    tensors, into, case.groups, case.counts, async_op
                )
                settle(work, async_op)

                def expected(g, ranks, case=case):
                    mine, count = ranks.index(case.rank), case.counts[g]
                    parts = [case.of(r, g, len(ranks))[mine * count :][:count] for r in ranks]
                    return torch.cat(parts)

                case.check(into, expected)
    return failures.texts


def test_all_to_all_gives_every_rank_of_a_group_its_segments(world):
    check_context(world, all_to_alls)


def all_gathers(context):
    relays, failures = context.comm.get_backend_impl(), Failures()
    for case in every_case(context):
        for async_op in (False, True):
            with failures.case(case.groups, case.numel, case.dtype, async_op):
                tensors = case.operands(lambda g, ranks: case.of(case.rank, g))  # noqa: B023
                into = case.empty(len)
                work = relays.sharded_relay_multi_group_all_gather(
                    tensors, into, case.groups, case.counts, async_op
                )
                settle(work, async_op)
                case.check(into, lambda g, ranks: torch.cat([case.of(r, g) for r in ranks]))  # noqa: B023
    return failures.texts


def test_all_gather_gives_every_rank_of_a_group_all_of_it(world):
    check_context(world, all_gathers)


def overlapping(context):
    """Outputs over inputs, and bools, which have sums and products of their own."""
    relays, failures = context.comm.get_backend_impl(), Failures()
    everybody = list(range(context.size))
    with failures.case("gathered in place"):
        memory = torch.full((context.size * 5,), -1.0, device=context.device)
        mine = memory[context.rank * 5 :][:5].fill_(context.rank)
        relays.sharded_relay_multi_group_all_gather([mine], [memory], [everybody], [5])
        assert memory.tolist() == [float(r) for r in everybody for _ in range(5)]
    with failures.case("exchanged in place"):
        memory = torch.arange(context.size, device=context.device) + 10 * context.rank
        relays.sharded_relay_multi_group_all_to_all([memory], [memory], [everybody], [1])
        assert memory.tolist() == [10 * r + context.rank for r in everybody]
    for op, wanted in (
        (ReduceOp.SUM, [True, True, False]), (ReduceOp.PRODUCT, [False, True, False]),
        (ReduceOp.MAX, [True, True, False]), (ReduceOp.MIN, [False, True, False]),
    ):  # fmt: skip
        with failures.case("bool", str(op)):
            flags = torch.tensor([context.rank == 0, True, False], device=context.device)
            relays.sharded_relay_multi_group_all_reduce([flags], op, [everybody], [3])
            assert flags.tolist() == wanted
    assert_alive(context.comm)
    return failures.texts


def test_operands_may_overlap_and_may_be_bools(world):
    check_context(world, overlapping)


def among_others(context):
    """In the order of the communicator's operations, and without hooks."""
    comm, fired = context.comm, []
    hook = comm.register_pre_hook(lambda name, op_id, args: fired.append(name))
    relays = comm.get_backend_impl()
    tensor = torch.full((10_000,), 1.0, device=context.device)
    works = [
        relays.sharded_relay_multi_group_all_reduce(
            [tensor], ReduceOp.SUM, [list(range(context.size))], [10_000], True
        )
        for _ in range(5)
    ]
    hook.remove()
    works.append(comm.all_reduce(tensor, ReduceOp.SUM, True))
    for work in works:
        finish(work, True)
    assert bool((tensor == float(context.size**6)).all())
    assert fired == []
    return []


def test_they_have_the_order_of_the_communicators_operations(world):
    check_context(world, among_others)


def misuse(context):
    comm, failures, size = context.comm, Failures(), context.size
    relays, data = comm.get_backend_impl(), torch.zeros(4, device=context.device)
    invalid = torchcomms.InvalidArgument
    reduce = relays.sharded_relay_multi_group_all_reduce
    gather = relays.sharded_relay_multi_group_all_gather
    everybody = list(range(size))
    wrong = {
        "2 entries": ([data, data], ReduceOp.SUM, [everybody], [4]),
        "per_group_counts has 0": ([data], ReduceOp.SUM, [everybody], []),
        "is empty": ([data], ReduceOp.SUM, [[]], [4]),
        f"rank {size}": ([data], ReduceOp.SUM, [[0, size]], [4]),
        "rank -1": ([data], ReduceOp.SUM, [[-1]], [4]),
        "twice": ([data], ReduceOp.SUM, [[0, 1, 0]], [4]),
        "is -1": ([data], ReduceOp.SUM, [everybody], [-1]),
        "4 elements": ([data], ReduceOp.SUM, [everybody], [5]),
        "contiguous": ([torch.zeros(2, 2).t()], ReduceOp.SUM, [everybody], [4]),
        "meta": ([torch.zeros(4, device="meta")], ReduceOp.SUM, [everybody], [4]),
    }
    for word, arguments in wrong.items():
        with failures.case(word), refused(invalid, "sharded_relay_multi_group_all_reduce", word):
            reduce(*arguments)
    with failures.case("sizes"), refused(invalid, "output_tensors[0]", f"{size} times 4"):
        gather([data], [data], [everybody], [4])
    with failures.case("dtypes"), refused(invalid, "output_tensors[0]", "float64"):
        reduce([data], ReduceOp.SUM, [everybody], [4], False, [data.double()])
    for op, dtype in (
        (ReduceOp.BAND, torch.int32), (ReduceOp.SUM, torch.complex64), (ReduceOp.AVG, torch.bool),
        (ReduceOp.MAX, torch.uint32), (ReduceOp.PREMUL_SUM(2.0), torch.float32),
    ):  # fmt: skip
        with failures.case(dtype, str(op)), refused(torchcomms.Unsupported, "all_reduce"):
            reduce([torch.zeros(4, dtype=dtype)], op, [everybody], [4])
    with failures.case("nothing of it was sent"):
        assert_alive(comm)
    return failures.texts


def test_wrong_calls_are_refused_before_anything_is_sent(world):
    check_context(world, misuse)


def without_relay(context):
    """A rank outside of the group carries its data: without it the group waits in vain."""
    comm = context.new_comm(timeout=timedelta(seconds=2), abort_process_on_timeout_or_error=False)
    relays, outsider = comm.get_backend_impl(), context.size - 1
    comm.barrier(False)
    if context.rank != outsider:
        members = list(range(outsider))
        with refused(torchcomms.CommTimeout, "sharded_relay_multi_group_all_gather"):
            relays.sharded_relay_multi_group_all_gather(
                [torch.ones(8)], [torch.zeros(8 * outsider)], [members], [8]
            )
    context.meet("without_relay")
    comm.abort()
    comm.finalize()
    return []


@pytest.mark.worlds(sizes=(3, 4), device="cpu")
def test_a_group_needs_its_relays(world):
    check_context(world, without_relay)
