"""comm.tensor_register on ctran: it keeps the memory, counts, and changes no operation."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import Failures, assert_alive, check_context, refused

pytestmark = pytest.mark.worlds(backends=("ctran",), device="cpu")

INVALID = torchcomms.InvalidArgument


def registered_bytes(comm):
    return comm.describe()["memory"].get("registered tensors", 0)


def registered(context):
    comm, failures = context.comm, Failures()
    before = registered_bytes(comm)
    tensor = torch.full((1000,), float(context.rank))
    for count in (1, 2):
        comm.tensor_register(tensor)
        with failures.case("bytes", count):
            assert registered_bytes(comm) == before + 4000
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    with failures.case("sum"):
        assert bool((tensor == sum(range(context.size))).all())
    comm.tensor_deregister(tensor)
    with failures.case("deregistered once of twice"):
        assert registered_bytes(comm) == before + 4000
    comm.tensor_deregister(tensor)
    with failures.case("deregistered"):
        assert registered_bytes(comm) == before
    with failures.case("again"), refused(INVALID, "tensor_deregister", "4000", "not registered"):
        comm.tensor_deregister(tensor)
    comm.tensor_register(torch.empty(0))
    comm.tensor_deregister(torch.empty(0))
    assert_alive(comm)
    return failures.texts


def test_registered_tensors_are_counted_and_operations_stay_as_they_are(world):
    check_context(world, registered)


def wrong(context):
    comm, failures = context.comm, Failures()
    for what, tensor in (
        ("one piece", torch.zeros(4, 4)[:, ::2]),
        ("meta", torch.zeros(4, device="meta")),
    ):
        with failures.case(what), refused(INVALID, "tensor_register", what):
            comm.tensor_register(tensor)
    assert_alive(comm)
    return failures.texts


def test_what_is_not_one_piece_of_memory_cannot_be_registered(world):
    check_context(world, wrong)


def left_registered(context):
    """A registration needs no end of its own, and does not need its tensor."""
    child = context.comm.split(list(range(context.size)), "left_registered")
    child.tensor_register(torch.ones(10))
    assert registered_bytes(child) == 40
    assert_alive(child)
    child.finalize()
    assert_alive(context.comm)
    return []


def test_finalize_ends_what_is_registered(world):
    check_context(world, left_registered)
