"""MIN and MAX of floating point: a NaN of any rank is the result, as of torch's minimum/maximum."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torchcomms import ReduceOp

from tests.harness.cases import Failures, check, finish, row_of
from tests.harness.values import FLOATS, sample

needs_propagation = pytest.mark.worlds(needs=("propagated_nans",))

OPS = {
    "min": (ReduceOp.MIN, torch.minimum),
    "max": (ReduceOp.MAX, torch.maximum),
}
# The bits of quiet and signalling ones, of either sign.
NANS = {
    torch.float64: (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, (0xFFF0 << 48) + 1),
    torch.float32: (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001),
    torch.float16: (0x7E00, 0xFE00, 0x7C01, 0xFC01),
    torch.bfloat16: (0x7FC0, 0xFFC0, 0x7F81, 0xFF81),
    torch.float8_e5m2: (0x7E, 0xFE, 0x7D, 0xFD),
    torch.float8_e4m3fn: (0x7F, 0xFF),
    torch.float8_e5m2fnuz: (0x80,),
    torch.float8_e4m3fnuz: (0x80,),
    torch.float8_e8m0fnu: (0xFF,),
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Around the lengths of vectors, of blocks of them, and of messages.
NUMELS = (0, 1, 2, 7, 67, 131, 4099)
LARGE = 400_003


def nans(dtype):
    """All of NANS, as integers of the dtype's size."""
    size = dtype.itemsize
    signed = "u1" if size == 1 else f"i{size}"
    return torch.from_numpy(np.array(NANS[dtype], dtype=f"u{size}").view(signed))


def own_values(rank, size, dtype, numel, salt):
    """NaN in every element `i` of which `i % (size + 1)` is the rank, beside infinities."""
    values = sample(rank, dtype, numel, salt)
    index = torch.arange(numel)
    if dtype in FLOATS:
        values[index % 11 == 5 + rank % 2] = float("inf")
        values[index % 13 == 5 + rank % 2] = -float("inf")
    kinds = nans(dtype).to(values.device)
    own = index % (size + 1) == rank
    values.view(BITS[dtype.itemsize])[own] = kinds[index[own] // (size + 1) % len(kinds)]
    return values


def expect(got, inputs, combine):
    want = functools.reduce(combine, [t.cpu().double() for t in inputs])
    size, index = len(inputs), torch.arange(want.numel(), device="cpu")
    assert torch.equal(want.isnan(), index % (size + 1) < size), "the reference itself"
    torch.testing.assert_close(got.cpu().double(), want, rtol=0, atol=0, equal_nan=True)


def reduced(comm, name, op, dtype, numel, async_op):
    """What `name` leaves on this rank, and the inputs that it is the reduction of."""
    rank, size = comm.get_rank(), comm.get_size()
    slots = [[own_values(r, size, dtype, numel, s) for s in range(size)] for r in range(size)]
    if name in ("all_reduce", "reduce"):
        root = numel % size
        tensor = slots[rank][0]
        inputs = [own[0].clone() for own in slots]
        arguments = (root, op) if name == "reduce" else (op,)
        finish(getattr(comm, name)(tensor, *arguments, async_op), async_op)
        return (tensor, inputs) if name == "all_reduce" or rank == root else None
    output = torch.zeros(numel, dtype=dtype)
    source = torch.cat(slots[rank]) if name == "reduce_scatter_single" else slots[rank]
    finish(getattr(comm, name)(output, source, op, async_op), async_op)
    return output, [own[rank] for own in slots]


REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v", "reduce_scatter_single")


def dtypes_of(comm):
    row = row_of(comm)
    return tuple(NANS) if row.kernels or "narrow_reductions" not in row.lacks else FLOATS


def every_place(comm, name, op):
    failures, (of_comm, combine) = Failures(), OPS[op]
    for dtype in dtypes_of(comm):
        for turn, numel in enumerate(NUMELS):
            with failures.case(dtype, f"numel={numel}"):
                result = reduced(comm, name, of_comm, dtype, numel, async_op=turn % 2 == 0)
                if result is not None:
                    expect(*result, combine)
    return failures.texts


@needs_propagation
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_nan_of_any_rank_is_the_result_on_every_rank(world, name, op):
    """In each place, of each kind, for every dtype; where no rank has one it is the number."""
    check(world, every_place, name, op)


def large(comm, dtype):
    failures = Failures()
    numel = LARGE // comm.get_size()
    for name in REDUCTIONS:
        for op, (of_comm, combine) in OPS.items():
            with failures.case(name, op):
                result = reduced(comm, name, of_comm, dtype, numel, async_op=False)
                if result is not None:
                    expect(*result, combine)
    return failures.texts


@needs_propagation
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_nan_is_the_result_of_large_tensors_too(world, dtype):
    """Other algorithms run those, and on `ncclx` the library would run other reductions."""
    check(world, large, dtype)


def number_if_any(combine, left, right):
    both = combine(left, right)
    return torch.where(left.isnan(), right, torch.where(right.isnan(), left, both))


def dropped(comm):
    failures, rank, size = Failures(), comm.get_rank(), comm.get_size()
    for dtype in FLOATS:
        for op, (of_comm, combine) in OPS.items():
            values = [own_values(r, size, dtype, 4099, 0) for r in range(size)]
            for own in values:
                own[::17] = float("nan")
            drops = functools.partial(number_if_any, combine)
            want = functools.reduce(drops, [own.cpu().double() for own in values])
            comm.all_reduce(values[rank], of_comm, False)
            with failures.case(dtype, op):
                got = values[rank].cpu().double()
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
                assert torch.equal(got.isnan(), torch.arange(4099, device="cpu") % 17 == 0)
    return failures.texts


@pytest.mark.worlds(backends=("nccl", "nccl-lazy", "rccl", "xccl"))
def test_a_vendors_library_drops_a_nan_where_another_rank_has_a_number(world):
    """The result is NaN where all ranks have one. So does NCCL, and the stand-in like it."""
    check(world, dropped)
