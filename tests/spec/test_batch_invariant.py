"""Hint batch_invariant: an element's bits do not depend on what else is reduced."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, check_context, refused

pytestmark = pytest.mark.worlds(backends=("ctran", "ncclx"), sizes=(2, 3, 4))

HINT = {"batch_invariant": "true"}
PART = 61
# Elements before and after the part that is looked at, on all sides of where algorithms change.
PLACES = ((0, 0), (1, 2), (0, 4000), (977, 3000), (0, 70_000), (65_536, 400_001))


def random(rank, numel, dtype, seed):
    generator = torch.Generator(device="cpu").manual_seed(1000 * seed + rank)
    return torch.randn(numel, generator=generator, device="cpu").to(dtype)


def in_rank_order(size, dtype):
    """Added one by one with at least float32 between, rounded once."""
    total = torch.zeros(PART, dtype=torch.float32, device="cpu")
    for rank in range(size):
        own = random(rank, PART, dtype, 0).float()
        total = own if rank == 0 else total + own
    return total.to(dtype)


def placed(context, dtype, before, after):
    parts = [
        random(context.rank, before, dtype, 1),
        random(context.rank, PART, dtype, 0),
        random(context.rank, after, dtype, 2),
    ]
    return torch.cat(parts).to(context.comm.get_device())


def invariant(context, of_call):
    failures, size = Failures(), context.size
    comm = context.new_comm("invariant", hints={} if of_call else HINT)
    more = {"hints": HINT} if of_call else {}
    for dtype in (torch.float32, torch.bfloat16):
        want = in_rank_order(size, dtype)
        for before, after in PLACES:
            part = slice(before, before + PART)
            values = placed(context, dtype, before, after)
            slots = values.repeat(size)
            own = torch.zeros_like(values)
            comm.reduce_scatter_single(own, slots, ReduceOp.SUM, False, **more)
            root = values.clone()
            comm.reduce(root, size - 1, ReduceOp.SUM, False, **more)
            comm.all_reduce(values, ReduceOp.SUM, False, **more)
            results = {"all_reduce": values, "reduce_scatter_single": own}
            if context.rank == size - 1:
                results["reduce"] = root
            for name, result in results.items():
                with failures.case(name, dtype, before, after):
                    assert torch.equal(result[part].cpu(), want)
    comm.finalize()
    return failures.texts


@pytest.mark.parametrize("of_call", [False, True], ids=["communicator", "call"])
def test_an_element_has_the_bits_of_the_order_of_ranks_wherever_it_is(world, of_call):
    check_context(world, invariant, of_call)


def contradicted(context):
    failures = Failures()
    with failures.case("creation"), pytest.raises(ValueError, match="leave out one"):
        context.new_comm("contradicted", hints={**HINT, "ncclx::algorithm": "nccl"})
    comm = context.new_comm("by_call", hints=HINT)
    values = torch.ones(4, device=comm.get_device())
    by_library = {"ncclx::algorithm": "nccl"}
    with (
        failures.case("a call"),
        refused(torchcomms.Unsupported, "batch_invariant", "only kernels"),
    ):
        comm.all_reduce(values, ReduceOp.SUM, False, hints=by_library)
    with failures.case("a call that needs it no more"):
        comm.all_reduce(values, ReduceOp.SUM, False, hints={**by_library, "batch_invariant": "0"})
        assert values.tolist() == [context.size] * 4
        values.fill_(1)
    with failures.case("what adds nothing"):
        comm.broadcast(values, 0, False, hints=by_library)
    with failures.case("afterwards"):
        comm.all_reduce(values, ReduceOp.SUM, False)
        assert values.tolist() == [context.size] * 4
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ncclx",), sizes=(2, 3, 4))
def test_the_library_is_not_asked_to_add(world):
    check_context(world, contradicted)
