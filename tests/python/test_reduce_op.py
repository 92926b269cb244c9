"""ReduceOp as a value: constants, factors, equality, copies."""

from __future__ import annotations

import copy

import pytest
import torch
from torchcomms import RedOpType, ReduceOp

PLAIN = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"]


@pytest.mark.parametrize("name", PLAIN)
def test_each_constant_has_its_type(name):
    op = getattr(ReduceOp, name)
    assert isinstance(op, ReduceOp)
    assert op.type == getattr(RedOpType, name)
    assert getattr(ReduceOp, name) is op


@pytest.mark.parametrize("name", PLAIN)
def test_an_operation_built_from_its_type_equals_the_constant(name):
    built = ReduceOp(getattr(RedOpType, name))
    assert built == getattr(ReduceOp, name)
    assert hash(built) == hash(getattr(ReduceOp, name))
    assert ReduceOp(opType=getattr(RedOpType, name)) == built


def test_different_operations_differ():
    ops = [getattr(ReduceOp, name) for name in PLAIN]
    assert len(set(ops)) == len(ops)
    assert ReduceOp.SUM != ReduceOp.MAX
    assert (ReduceOp.SUM == RedOpType.SUM) is False
    assert (ReduceOp.SUM == 0) is False
    assert (ReduceOp.SUM == None) is False  # noqa: E711


@pytest.mark.parametrize("factor", [2.0, 3, torch.tensor([2.0]), torch.tensor(4)], ids=repr)
def test_premul_sum_takes_a_number_or_a_one_element_tensor(factor):
    assert ReduceOp.PREMUL_SUM(factor).type == RedOpType.PREMUL_SUM
    assert ReduceOp.PREMUL_SUM(factor=factor).type == RedOpType.PREMUL_SUM


@pytest.mark.parametrize("factor", ["2", None, [2.0], 1j], ids=repr)
def test_premul_sum_refuses_other_factors(factor):
    with pytest.raises(TypeError):
        ReduceOp.PREMUL_SUM(factor)


def test_premul_sum_without_a_factor_cannot_be_built():
    with pytest.raises(RuntimeError, match="PREMUL_SUM"):
        ReduceOp(RedOpType.PREMUL_SUM)
    with pytest.raises(TypeError):
        ReduceOp.PREMUL_SUM()


def test_premul_sums_are_equal_by_their_factor():
    factor = torch.tensor([2.0])
    assert ReduceOp.PREMUL_SUM(factor) == ReduceOp.PREMUL_SUM(factor)
    assert hash(ReduceOp.PREMUL_SUM(factor)) == hash(ReduceOp.PREMUL_SUM(factor))
    assert ReduceOp.PREMUL_SUM(2.0) == ReduceOp.PREMUL_SUM(2.0)
    assert ReduceOp.PREMUL_SUM(2.0) != ReduceOp.PREMUL_SUM(3.0)
    assert ReduceOp.PREMUL_SUM(2.0) != ReduceOp.SUM


def test_an_operation_cannot_be_changed():
    with pytest.raises(AttributeError):
        ReduceOp.SUM.type = RedOpType.MAX
    with pytest.raises(TypeError):
        ReduceOp()
    with pytest.raises(TypeError):
        ReduceOp("SUM")


@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM(2.0)], ids=repr)
def test_copies_are_new_objects_of_the_same_type(op):
    shallow, memo = copy.copy(op), {}
    deep = copy.deepcopy(op, memo)
    assert shallow is not op
    assert deep is not op
    assert shallow.type == deep.type == op.type
    assert memo[id(op)] is deep
    assert copy.deepcopy([op, op])[0] == op


def test_repr_names_the_operation():
    assert "SUM" in repr(ReduceOp.SUM)
    assert "PREMUL_SUM" in repr(ReduceOp.PREMUL_SUM(2.0))
