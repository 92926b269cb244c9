"""What must come of an operation: against references of the test suite's own, and in itself."""

from __future__ import annotations

import pytest
import torch
from torchcomms.soak.buffers import Buffer, Buffers
from torchcomms.soak.calls import Piece, Segment, arguments
from torchcomms.soak.plan import DTYPES, Operation, is_defined
from torchcomms.soak.values import Sample

from tests.harness.values import assert_same_bits

REDUCTIONS = (
    "SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR", "PREMUL_NUMBER", "PREMUL_TENSOR"
)  # fmt: skip
PAIRS = [(r, d) for r in REDUCTIONS for d in DTYPES if is_defined(r, d)]
CPU = torch.device("cpu")
AT = 41


def operation(**fields) -> Operation:
    return Operation(**{"index": 0, "name": "all_reduce", "slot": 0, "numel": 300, **fields})


def alone(values: list, reduction: str, factors: list):
    """The reduction of one element a rank, in Python's numbers."""
    if reduction.startswith("PREMUL"):
        return sum(v * f for v, f in zip(values, factors, strict=True))
    total = values[0]
    for value in values[1:]:
        total = {
            "SUM": lambda a, b: a + b, "AVG": lambda a, b: a + b, "PRODUCT": lambda a, b: a * b,
            "MIN": min, "MAX": max, "BAND": lambda a, b: a & b, "BOR": lambda a, b: a | b,
            "BXOR": lambda a, b: a ^ b,
        }[reduction](total, value)  # fmt: skip
    if reduction == "AVG":
        return int(total / len(values)) if isinstance(total, int) else total / len(values)
    return total


def truth(values: list, reduction: str, _factors: list):
    if reduction in ("SUM", "MAX", "BOR"):
        return any(values)
    return sum(values) % 2 == 1 if reduction == "BXOR" else all(values)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(("reduction", "dtype"), PAIRS)
def test_results_are_those_of_pythons_numbers(reduction, dtype, size):
    """Of what the ranks really give; and they fit the dtype, so that no order of adding matters."""
    sample = Sample(operation(reduction=reduction, dtype=dtype), size, "salt")
    given = [sample.given(rank, 4).values for rank in range(size)]
    assert all(g.dtype == getattr(torch, dtype) for g in given)
    factors = []
    for rank in range(size):
        factor = sample.operation(rank, CPU)._factor
        factors.append(factor.item() if isinstance(factor, torch.Tensor) else factor)
    result = sample.reduced(4)
    columns = zip(*(g.tolist() for g in given), strict=True)
    reduce = truth if dtype == "bool" else alone
    for got, column in zip(result.values.tolist(), columns, strict=True):
        want = reduce(list(column), reduction, factors)
        if result.bound:
            assert abs(got - want) <= 1e-9 * max(abs(want), 1), "the expectation itself is exact"
            wide = result.values.dtype
            rounded = torch.tensor(want, dtype=wide).to(getattr(torch, dtype)).to(wide)
            assert abs(rounded.item() - want) <= result.bound
        else:
            assert got == want


@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_differ_by_rank_part_turn_and_salt(dtype):
    op = operation(name="broadcast", dtype=dtype)
    first = Sample(op, 2, "a").given(0, 0).values
    others = [
        Sample(op, 2, "a").given(1, 0),
        Sample(op, 2, "a").given(0, 1),
        Sample(op, 2, "a", 1).given(0, 0),
        Sample(op, 2, "b").given(0, 0),
    ]
    assert_same_bits(Sample(op, 2, "a").given(0, 0).values, first)
    for other in others:
        assert not torch.equal(other.values.view(torch.uint8), first.view(torch.uint8))


def fixed(numel: int, **segment) -> Piece:
    return Piece((Segment("given", numel),), (Segment("given", numel),), **segment)


@pytest.mark.parametrize("numel", [1, 7, 300])
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_bit_of_a_moved_element_is_found(dtype, offset, numel):
    op = operation(name="broadcast", dtype=dtype, offset=offset)
    sample = Sample(op, 2, "salt")
    for at in {0, numel // 2, numel - 1}:
        buffer = Buffer("tensor", fixed(numel), op, CPU)
        buffer.fill(sample)
        assert buffer.good(sample)
        assert buffer.diagnose(sample) is None
        buffer.tensor[at : at + 1].view(torch.uint8)[-1] ^= 1
        assert not buffer.good(sample)
        wrong = buffer.diagnose(sample)
        assert (wrong.where, wrong.index, wrong.count) == ("tensor", at, 1)


@pytest.mark.parametrize(("reduction", "dtype"), PAIRS)
def test_a_wrong_element_of_a_reduction_is_found(reduction, dtype):
    """Right ones pass; the neighbour's, and what was there before, do not."""
    op = operation(reduction=reduction, dtype=dtype, numel=97)
    sample = Sample(op, 3, "salt")
    piece = arguments(op, 0, 3)["tensor"][0]
    buffer = Buffer("tensor", piece, op, CPU)
    buffer.fill(sample)
    right = sample.reduced(0).tiled(op.numel, CPU)
    buffer.tensor.copy_(right)
    assert buffer.good(sample)
    bound, value = sample.reduced(0).bound or 0, buffer.tensor[AT]
    if dtype == "bool":
        buffer.tensor[AT] = not value
    elif value.is_floating_point() or value.is_complex():
        # A step that no bound covers, and that the dtype does not round away.
        eps = torch.finfo(value.dtype).eps
        buffer.tensor[AT] = value.item() + 2 * bound + 4 * eps * abs(value.item()) + 1
    else:
        buffer.tensor[AT] = value.item() ^ 1
    assert not buffer.good(sample)
    assert buffer.diagnose(sample).index == AT


def test_what_a_rounding_may_do_is_no_fault():
    """Every order of adding, and multiplying before or after, in the element type itself."""
    for dtype in ("float32", "bfloat16", "float16"):
        op = operation(reduction="AVG", dtype=dtype, numel=127)
        sample = Sample(op, 8, "salt")
        kind = getattr(torch, dtype)
        given = [sample.given(rank, 0).values for rank in range(8)]
        early = torch.zeros(127, dtype=kind)
        for one in given:
            early += one / 8
        late = torch.zeros(127, dtype=kind)
        for one in reversed(given):
            late += one
        buffer = Buffer("tensor", arguments(op, 0, 8)["tensor"][0], op, CPU)
        buffer.fill(sample)
        for result in (early, late / 8):
            buffer.tensor.copy_(result)
            assert buffer.good(sample), dtype


def test_margins_and_rows_that_nobody_asked_for_are_watched():
    op = operation(
        name="all_to_all_v_single", dtype="int16", numel=3, width=3, counts=((1, 2), (0, 1))
    )
    sample = Sample(op, 2, "salt")
    buffers = Buffers(arguments(op, 0, 2), op, CPU)
    buffers.fill(sample)
    output, source = buffers.tensors["output"][0], buffers.tensors["input"][0]
    assert output.shape == (1 + 0 + 1, 3)
    assert source.shape == (1 + 2 + 1, 3)
    output[0] = source[0]  # what a rank sends to itself
    assert buffers.good(sample, CPU)
    output[1, 2] = 9
    assert not buffers.good(sample, CPU)
    wrong = buffers.diagnose(sample)
    assert (wrong.where, wrong.index, wrong.expected) == ("output", 5, "the fill bytes")


def test_an_input_that_was_written_to_is_found():
    op = operation(name="all_gather_single", dtype="float32", numel=5)
    sample = Sample(op, 1, "salt")
    buffers = Buffers(arguments(op, 0, 1), op, CPU)
    buffers.fill(sample)
    buffers.tensors["output"][0].copy_(buffers.tensors["input"][0])
    assert buffers.good(sample, CPU)
    buffers.tensors["input"][0].view(torch.uint8)[7] ^= 1
    wrong = buffers.diagnose(sample)
    assert (wrong.where, wrong.index) == ("input", 1)
