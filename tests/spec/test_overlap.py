"""Outputs that share memory with inputs otherwise than in place: the result is right, or the call
is refused before anything is sent."""

from __future__ import annotations

import functools

import torch
from torchcomms import ReduceOp

from tests.harness.cases import Failures, assert_alive, check_context
from tests.harness.operations import operations_for

COUNT = 100_000
FEW = 20_000  # where each rank has a slot of its own for each


def value(rank: int, slot: int) -> float:
    return float(10 * (rank + 1) + slot)


def slots_of(memory: torch.Tensor, size: int, count: int = COUNT) -> list[torch.Tensor]:
    return list(memory[: size * count].chunk(size))


def filled(context, count: int = COUNT) -> torch.Tensor:
    """A slot for each rank, and one more."""
    memory = torch.zeros((context.size + 1) * count)
    for index, slot in enumerate(slots_of(memory, context.size, count)):
        slot.fill_(value(context.rank, index))
    return memory


def reduced(context, slot: int) -> float:
    return sum(value(rank, slot) for rank in range(context.size))


def reduce_scatter_into(context, at: int):
    memory = filled(context)
    output = memory[at : at + COUNT]
    context.comm.reduce_scatter(output, slots_of(memory, context.size), ReduceOp.SUM, False)
    return output, [reduced(context, context.rank)] * COUNT


def reduce_scatter_of_one(context):
    tensor = torch.full((COUNT,), value(context.rank, 0))
    context.comm.reduce_scatter(tensor, [tensor] * context.size, ReduceOp.SUM, False)
    return tensor, [reduced(context, 0)] * COUNT


def gather_single_within(context):
    output = torch.zeros(context.size * COUNT)
    mine = output[COUNT // 2 : COUNT // 2 + COUNT].fill_(value(context.rank, 0))
    context.comm.gather_single(output, mine, 0, False)
    if context.rank != 0:
        return output[:1] * 0, [0.0]
    return output, [value(rank, 0) for rank in range(context.size) for _ in range(COUNT)]


def all_gather_single_within(context):
    output = torch.zeros(context.size * COUNT)
    at = COUNT // 2 if context.size > 1 else 0
    context.comm.all_gather_single(
        output, output[at : at + COUNT].fill_(value(context.rank, 0)), False
    )
    return output, [value(rank, 0) for rank in range(context.size) for _ in range(COUNT)]


def reduce_scatter_single_within(context):
    memory = filled(context)
    output = memory[COUNT // 2 : COUNT // 2 + COUNT]
    context.comm.reduce_scatter_single(output, memory[: context.size * COUNT], ReduceOp.SUM, False)
    return output, [reduced(context, context.rank)] * COUNT


def exchanged(context) -> list[float]:
    """What each rank had for this one."""
    return [value(rank, context.rank) for rank in range(context.size) for _ in range(FEW)]


def all_to_all_single_of_one(context, async_op):
    tensor = filled(context, FEW)[: context.size * FEW]
    context.comm.all_to_all_single(tensor, tensor, async_op).wait()
    return tensor, exchanged(context)


def all_to_all_v_single_of_one(context, async_op):
    tensor = filled(context, FEW)[: context.size * FEW]
    rows = [FEW] * context.size
    context.comm.all_to_all_v_single(tensor, tensor, rows, rows, async_op).wait()
    return tensor, exchanged(context)


def all_to_all_of_one_slot(context, async_op):
    """The first tensor of both lists is the same one."""
    inputs = [slot.clone() for slot in slots_of(filled(context, FEW), context.size, FEW)]
    outputs = [inputs[0], *(torch.zeros(FEW) for _ in inputs[1:])]
    context.comm.all_to_all(outputs, inputs, async_op).wait()
    return torch.cat(outputs), exchanged(context)


def all_to_all_of_one_list(context, async_op):
    tensors = [slot.clone() for slot in slots_of(filled(context, FEW), context.size, FEW)]
    context.comm.all_to_all(tensors, tensors, async_op).wait()
    return torch.cat(tensors), exchanged(context)


def overlapping(context):
    after = (context.rank + 1) % context.size * COUNT
    cases = {
        "reduce_scatter into another slot": lambda: reduce_scatter_into(context, after),
        "reduce_scatter beside a slot": lambda: reduce_scatter_into(context, after + 3),
        "reduce_scatter of one tensor": lambda: reduce_scatter_of_one(context),
        "gather_single within": lambda: gather_single_within(context),
        "all_gather_single within": lambda: all_gather_single_within(context),
        "reduce_scatter_single within": lambda: reduce_scatter_single_within(context),
    }
    exchanges = {
        "all_to_all_single of one tensor": all_to_all_single_of_one,
        "all_to_all_v_single of one tensor": all_to_all_v_single_of_one,
        "all_to_all of one slot": all_to_all_of_one_slot,
        "all_to_all of one list": all_to_all_of_one_list,
    }
    for name, run in exchanges.items():
        cases[name] = functools.partial(run, context, False)
        cases[f"{name}, async"] = functools.partial(run, context, True)
    failures = Failures()
    for name, run in cases.items():
        if name.split()[0] not in operations_for(context):
            continue
        with failures.case(name):
            try:
                output, wanted = run()
            except ValueError:
                continue  # it says so; nothing was sent
            wrong = (output.cpu() != torch.tensor(wanted)).sum().item()
            assert wrong == 0, f"{wrong} of {len(wanted)} elements are wrong"
    assert_alive(context.comm)
    return failures.texts


def test_outputs_that_overlap_inputs(world):
    check_context(world, overlapping)
