"""Which element types an operation takes: every one in movement, the defined ones in reductions."""

from __future__ import annotations

import itertools

import torch

from tests.harness.cases import Failures, assert_alive, check, refused, row_of
from tests.harness.operations import COLLECTIVES, REDUCING, call
from tests.harness.values import (
    BITWISE,
    COMPLEX,
    FLOATS,
    MOVABLE,
    NARROW,
    REDUCE_OPS,
    REDUCIBLE,
    is_defined,
    reduce_op,
)


def of_dtype(dtype):
    return lambda _slot, shape: torch.zeros(shape, dtype=torch.float32).to(dtype)


def movement(comm):
    failures = Failures()
    for name, dtype in itertools.product(COLLECTIVES, MOVABLE):
        if name not in REDUCING:
            with failures.case(name, dtype):
                call(comm, name, False, of_dtype(dtype))
    return failures.texts


def test_every_collective_that_only_moves_takes_every_dtype(world):
    check(world, movement)


def defined_reductions(comm):
    failures, row = Failures(), row_of(comm)
    for name, dtype, op in itertools.product(REDUCING, REDUCIBLE, REDUCE_OPS):
        if is_defined(op, dtype) and row.reduces(op, dtype):
            with failures.case(name, dtype, op):
                operation = reduce_op(op, comm.get_rank(), dtype)
                call(comm, name, False, of_dtype(dtype), op=operation)
    return failures.texts


def test_every_reduction_takes_every_defined_pair_of_dtype_and_op(world):
    check(world, defined_reductions)


def undefined_reductions(comm):
    """Refused on the rank that asks, before anything is sent: only rank 0 does."""
    failures = Failures()
    if comm.get_rank() == 0:
        pairs = [
            *itertools.product(FLOATS, BITWISE),
            *itertools.product(COMPLEX, ("min", "max", *BITWISE)),
            *itertools.product(NARROW, BITWISE),
        ]
        for name, (dtype, op) in itertools.product(REDUCING, pairs):
            with failures.case(name, dtype, op), refused(RuntimeError, name):
                call(comm, name, False, of_dtype(dtype), op=reduce_op(op, 0, dtype))
    assert_alive(comm)
    return failures.texts


def test_reductions_that_mean_nothing_are_refused(world):
    """Bitwise on floats, order and bits on complex numbers, arithmetic on 8-bit floats."""
    check(world, undefined_reductions)


def odd_tensors(comm):
    failures = Failures()
    if comm.get_rank() == 0:
        quantized = torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8)
        with failures.case("quantized"), refused(RuntimeError, "broadcast"):
            comm.broadcast(quantized, 0, False)
    assert_alive(comm)
    return failures.texts


def test_quantized_tensors_are_refused(world):
    """Their scale would not travel with them."""
    check(world, odd_tensors)
