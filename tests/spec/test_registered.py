"""Outputs in windows, which the peers write themselves, and inputs of reductions there, which they
read where they lie: hint `<backend>::registered`.

Where the hint is not given, or a tensor is small or in no window, operations are what they always
are; that these are the other ones shows where ranks break the hint's promise.
"""

from __future__ import annotations

import itertools

import pytest
import torch
import torchcomms

from tests.harness.cases import Failures, assert_alive, check_context, finish, refused
from tests.harness.registered import BESIDE, LEAST_BYTES, Memory, hints_of

pytestmark = pytest.mark.worlds(backends=("ctran", "ncclx"), needs=("registered",), sizes=(2, 3))


def part_of_large(context, extra=0):
    """Elements of a rank's part of a float32 tensor that is just large enough."""
    return -(-LEAST_BYTES // 4 // context.size) + extra


def sample(context, rank, numel):
    values = torch.arange(numel, dtype=torch.int64) * 3 + 1000003 * rank
    return (values % (1 << 24)).to(torch.float32).to(context.device)


def collectives(context, said):
    comm, size, rank, failures = context.comm, context.size, context.rank, Failures()
    hints = hints_of(context, said)
    # Of 8 MiB a rank's own part is copied beside the others.
    for extra in (0, 1, 1001, 2 << 20) if said == "copies" else (0, 1, 1001):
        part = part_of_large(context, extra)
        inputs = [sample(context, r, size * part) for r in range(size)]
        memory = Memory(context, size * part, is_one_place=said == "copies")
        gathered = torch.cat([one[:part] for one in inputs])
        for async_op in (False, True):
            with failures.case("all_gather_single", extra, async_op):
                finish(
                    comm.all_gather_single(
                        memory.tensor, inputs[rank][:part], async_op, hints=hints
                    ),
                    async_op,
                )
                memory.check(gathered)
            memory.tensor.fill_(-2)
            with failures.case("all_gather_single in place", extra, async_op):
                mine = memory.tensor[rank * part : (rank + 1) * part]
                mine.copy_(inputs[rank][:part])
                finish(comm.all_gather_single(memory.tensor, mine, async_op, hints=hints), async_op)
                memory.check(gathered)
            memory.tensor.fill_(-2)
            with failures.case("all_to_all_single", extra, async_op):
                work = comm.all_to_all_single(memory.tensor, inputs[rank], async_op, hints=hints)
                finish(work, async_op)
                memory.check(torch.cat([x[rank * part : (rank + 1) * part] for x in inputs]))
            for root in range(size):
                memory.tensor.copy_(inputs[rank])
                with failures.case("broadcast", extra, async_op, root):
                    finish(comm.broadcast(memory.tensor, root, async_op, hints=hints), async_op)
                    memory.check(inputs[root])
        memory.window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


@pytest.mark.parametrize("said", ["true", "copies"])
def test_outputs_in_windows_are_right(world, said):
    check_context(world, collectives, said)


def summed(context, kind, numel, of=torchcomms.ReduceOp.SUM):
    """Of every rank's sample of small numbers, in the order of ranks."""
    values = [small_numbers(context, r, numel, kind) for r in range(context.size)]
    total = values[0]
    for value in values[1:]:
        total = torch.maximum(total, value) if of == torchcomms.ReduceOp.MAX else total + value
    return total / context.size if of == torchcomms.ReduceOp.AVG else total


def small_numbers(context, rank, numel, kind):
    values = (torch.arange(numel, dtype=torch.int64) * 7 + 13 * rank + 1) % 61
    return values.to(kind).to(context.device)


REDUCTIONS = (
    (torch.float32, torchcomms.ReduceOp.SUM),
    (torch.float32, torchcomms.ReduceOp.AVG),
    (torch.int32, torchcomms.ReduceOp.MAX),
)


def reductions(context, said):
    comm, size, rank, failures = context.comm, context.size, context.rank, Failures()
    hints = hints_of(context, said)
    for extra in (0, 1, 1001):
        part = part_of_large(context, extra)
        memory = Memory(context, size * part, is_one_place=said == "copies")
        # Of an all_reduce alone copies need one place.
        apart = Memory(context, size * part, is_one_place=False)
        for (kind, op), async_op in itertools.product(REDUCTIONS, (False, True)):
            tensor = apart.tensor.view(kind)
            wanted = summed(context, kind, size * part, op)
            case = (str(kind), str(op), extra, async_op)
            tensor.copy_(small_numbers(context, rank, size * part, kind))
            with failures.case("reduce_scatter_single", *case):
                output = torch.zeros(part, dtype=kind, device=context.device)
                finish(
                    comm.reduce_scatter_single(output, tensor, op, async_op, hints=hints), async_op
                )
                assert torch.equal(output, wanted[rank * part : (rank + 1) * part])
                assert torch.equal(tensor, small_numbers(context, rank, size * part, kind))
            with failures.case("reduce_scatter_single in place", *case):
                mine = tensor[rank * part : (rank + 1) * part]
                finish(
                    comm.reduce_scatter_single(mine, tensor, op, async_op, hints=hints), async_op
                )
                assert torch.equal(mine, wanted[rank * part : (rank + 1) * part])
            with failures.case("reduce_scatter_single into what is another rank's", *case):
                tensor.copy_(small_numbers(context, rank, size * part, kind))
                first = tensor[:part]
                finish(
                    comm.reduce_scatter_single(first, tensor, op, async_op, hints=hints), async_op
                )
                assert torch.equal(first, wanted[rank * part : (rank + 1) * part])
            for root in range(size):
                tensor.copy_(small_numbers(context, rank, size * part, kind))
                with failures.case("reduce", *case, root):
                    finish(comm.reduce(tensor, root, op, async_op, hints=hints), async_op)
                    own = small_numbers(context, rank, size * part, kind)
                    assert torch.equal(tensor, wanted if rank == root else own)
            tensor = memory.tensor.view(kind)
            tensor.copy_(small_numbers(context, rank, size * part, kind))
            with failures.case("all_reduce", *case):
                finish(comm.all_reduce(tensor, op, async_op, hints=hints), async_op)
                assert torch.equal(tensor, wanted)
            with failures.case("nothing beside it", *case):
                for one in (memory, apart):
                    assert (one.all[: one.begin] == -1).all()
                    assert (one.all[one.begin + size * part :] == -1).all()
        with failures.case("a factor is no matter of peers", extra):
            memory.tensor.copy_(small_numbers(context, rank, size * part, torch.float32))
            op = torchcomms.ReduceOp.PREMUL_SUM(float(rank + 1))
            finish(comm.all_reduce(memory.tensor, op, False, hints=hints), False)
            scaled = [
                small_numbers(context, r, size * part, torch.float32) * (r + 1) for r in range(size)
            ]
            assert torch.equal(memory.tensor, sum(scaled[1:], scaled[0]))
        for one in (memory, apart):
            one.window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


@pytest.mark.parametrize("said", ["true", "copies"])
def test_reductions_of_tensors_in_windows_are_right(world, said):
    check_context(world, reductions, said)


def many(context, said):
    """Nothing is waited for between them: each must find what the one before has left."""
    comm, size, failures = context.comm, context.size, Failures()
    part, hints = part_of_large(context), hints_of(context, said)
    one, other = (Memory(context, size * part, said == "copies") for _ in range(2))
    whole = [sample(context, r, size * part) % 1000 for r in range(size)]  # sums stay exact
    one.tensor.copy_(whole[context.rank])
    small = torch.zeros(5, device=context.device)
    works = []
    for turn in range(6):
        works.append(comm.broadcast(one.tensor, turn % size, True, hints=hints))
        works.append(comm.all_to_all_single(other.tensor, one.tensor, True, hints=hints))
        works.append(comm.all_reduce(small, torchcomms.ReduceOp.SUM, True))
        works.append(comm.all_reduce(other.tensor, torchcomms.ReduceOp.SUM, True, hints=hints))
        works.append(comm.all_gather_single(one.tensor, other.tensor[:part], True, hints=hints))
    for work in works:
        work.wait()
    with failures.case("values"):
        # As the same on one rank: a broadcast, each rank's part of it, their sum, that of each.
        wanted = whole[0]
        for _ in range(6):
            wanted = sum(wanted.split(part)).repeat(size)
        one.check(wanted)
    for memory in (one, other):
        memory.window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


@pytest.mark.parametrize("said", ["true", "copies"])
def test_many_in_a_row_keep_their_order(world, said):
    check_context(world, many, said)


def different_places(context, op):
    """Copies need one place on all ranks: where the last rank has another one, all are told."""
    failures, last = Failures(), context.size - 1
    comm = context.new_comm("places", abort_process_on_timeout_or_error=False)
    part = part_of_large(context)
    everything = comm.window_allocate(4 * (part * context.size + BESIDE)).get_tensor()
    begin = 1 if context.rank == last else 0
    tensor = everything.view(torch.float32)[begin : begin + part * context.size]
    small = sample(context, context.rank, part)
    hints = hints_of(context, "copies")
    total = torchcomms.ReduceOp.SUM
    calls = {
        "all_gather_single": lambda: comm.all_gather_single(tensor, small, False, hints=hints),
        "all_reduce": lambda: comm.all_reduce(tensor, total, False, hints=hints),
    }
    with failures.case(op), refused(torchcomms.Mismatch, "registered", "place"):
        calls[op]().wait_blocking()
        comm.barrier(False).wait_blocking()
    with failures.case("it is over"):
        assert comm.is_aborted()
    comm.finalize()
    return failures.texts


@pytest.mark.parametrize("op", ["all_gather_single", "all_reduce"])
def test_copies_of_different_places_are_told(world, op):
    check_context(world, different_places, op)


def broken_promise(context):
    """The last rank's output is in another window: with the hint that is found out."""
    failures, last = Failures(), context.size - 1
    for said, on_call in (("true", True), ("true", False), ("false", True)):
        hints = hints_of(context, said)
        comm = context.new_comm(
            f"promise {said} {on_call}",
            abort_process_on_timeout_or_error=False,
            hints={} if on_call else hints,
        )
        part = part_of_large(context)
        windows = [comm.window_allocate(4 * part * context.size) for _ in range(2)]
        output = windows[context.rank == last].get_tensor().view(torch.float32)
        source = sample(context, context.rank, part)
        small = output[: 100 * context.size]
        with failures.case(said, on_call, "small ones are the usual ones"):
            comm.all_gather_single(small, source[:100], False, hints=hints).wait_blocking()
            wanted = torch.cat([sample(context, r, part)[:100] for r in range(context.size)])
            assert torch.equal(small, wanted)
        with failures.case(said, on_call):
            call_hints = hints if on_call else {}
            if said == "true":
                with refused(torchcomms.Mismatch, "in another window", "registered"):
                    comm.all_gather_single(output, source, False, hints=call_hints).wait_blocking()
                    comm.barrier(False).wait_blocking()
                assert comm.is_aborted()
            else:
                comm.all_gather_single(output, source, False, hints=call_hints).wait_blocking()
                wanted = torch.cat([sample(context, r, part) for r in range(context.size)])
                assert torch.equal(output, wanted)
                for window in windows:
                    window.tensor_deregister()
        comm.finalize()
    return failures.texts


def test_outputs_in_different_windows_are_told_and_only_with_the_hint(world):
    check_context(world, broken_promise)


def elsewhere(context):
    """In no window on any rank, or no longer: the usual ones run."""
    comm, size, failures = context.comm, context.size, Failures()
    part, hints = part_of_large(context), hints_of(context)
    source = sample(context, context.rank, part)
    wanted = torch.cat([sample(context, r, part) for r in range(size)])
    memory = Memory(context, size * part)
    with failures.case("in no window"):
        output = torch.zeros(size * part, device=context.device)
        comm.all_gather_single(output, source, False, hints=hints)
        assert torch.equal(output, wanted)
    with failures.case("beyond the window's end"):
        comm.all_gather_single(memory.all[: size * part], source, False, hints=hints)
        assert torch.equal(memory.all[: size * part], wanted)
    tensor = memory.tensor
    memory.window.tensor_deregister()
    with failures.case("deregistered"):
        comm.all_gather_single(tensor, source, False, hints=hints)
        assert torch.equal(tensor, wanted)
    assert_alive(comm)
    return failures.texts


def test_outputs_that_are_not_registered_are_right(world):
    check_context(world, elsewhere)


def wrong_value(context):
    failures, comm = Failures(), context.comm
    with failures.case("at creation"), refused(torchcomms.InvalidArgument, "registered", "maybe"):
        context.new_comm("wrong", hints=hints_of(context, "maybe"))
    with failures.case("of a call"), refused(torchcomms.InvalidArgument, "registered", "maybe"):
        hints = hints_of(context, "maybe")
        comm.broadcast(torch.zeros(1, device=context.device), 0, False, hints=hints)
    assert_alive(comm)
    return failures.texts


def test_a_value_that_is_no_boolean_is_refused(world):
    check_context(world, wrong_value)
