"""The references and tolerances of the suites: right results pass, and one wrong step fails."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from tests.harness.guarded import Guarded
from tests.harness.values import (
    FLOATS,
    INTEGERS,
    MOVABLE,
    PREMUL,
    REDUCE_OPS,
    REDUCIBLE,
    assert_reduced,
    assert_same_bits,
    factor,
    is_defined,
    reference,
    sample,
)

NUMEL = 500
PAIRS = [(d, o) for d, o in itertools.product(REDUCIBLE, REDUCE_OPS) if is_defined(o, d)]


def step_by_step(op, inputs):
    """A reduction that rounds to the element type after every step, as an implementation may."""
    dtype = inputs[0].dtype
    if op in PREMUL:
        inputs = [(t * factor(r, dtype)).to(dtype) for r, t in enumerate(inputs)]
    combine = {"product": torch.mul, "min": torch.minimum, "max": torch.maximum}.get(op, torch.add)
    total = functools.reduce(lambda a, b: combine(a, b).to(dtype), inputs)
    return (total / len(inputs)).to(dtype) if op == "avg" else total


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_reduction_in_the_element_type_is_within_tolerance(size):
    for dtype, op in PAIRS:
        if dtype in FLOATS or dtype.is_complex:
            inputs = [sample(rank, dtype, NUMEL) for rank in range(size)]
            assert_reduced(step_by_step(op, inputs), reference(op, inputs), op, size)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_missing_input_is_outside_of_the_tolerance(size):
    """Every op and dtype notices that one rank's contribution is that of another one."""
    for dtype, op in PAIRS:
        inputs = [sample(rank, dtype, NUMEL) for rank in range(size)]
        wrong = reference(op, [*inputs[:-1], inputs[0]]).to(dtype)
        with pytest.raises(AssertionError):
            assert_reduced(wrong, reference(op, inputs), op, size)


def test_integer_references_are_those_of_python():
    for dtype, op in PAIRS:
        if dtype not in INTEGERS or op == "premul_tensor":
            continue
        inputs = [sample(rank, dtype, 60) for rank in range(3)]
        bits = torch.iinfo(dtype).bits
        for i, got in enumerate(reference(op, inputs).tolist()):
            a, b, c = (t[i].item() for t in inputs)
            want = {
                "sum": a + b + c,
                "product": a * b * c,
                "min": min(a, b, c),
                "max": max(a, b, c),
                "avg": int((a + b + c) / 3),
                "band": a & b & c,
                "bor": a | b | c,
                "bxor": a ^ b ^ c,
            }[op]
            assert (got - want) % (1 << bits) == 0, (dtype, op, a, b, c, got)


def test_samples_differ_by_rank_and_by_salt():
    for dtype in MOVABLE:
        first = sample(0, dtype, NUMEL)
        for other in (sample(1, dtype, NUMEL), sample(0, dtype, NUMEL, salt=1)):
            with pytest.raises(AssertionError, match="differ"):
                assert_same_bits(other, first)


def test_a_write_beside_a_guarded_tensor_is_seen():
    for dtype, outside in itertools.product(MOVABLE, (-1, 7)):
        guarded = Guarded(7, dtype)
        guarded.check()
        neighbour = guarded.tensor.as_strided((1,), (1,), guarded.tensor.storage_offset() + outside)
        neighbour.copy_(torch.ones(1).to(dtype))
        with pytest.raises(AssertionError, match="outside"):
            guarded.check()
