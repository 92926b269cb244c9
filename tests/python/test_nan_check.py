"""The check for NaNs: what it refuses, what it lets pass, and that nothing is sent before."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import NanCheckHook

from tests.harness.cases import refused
from tests.harness.operations import OPERATIONS, arguments

NAN, INF = float("nan"), float("inf")


def checked(comm, *flags):
    hook = NanCheckHook(*flags)
    hook.register_with_comm(comm)
    assert hook.is_enabled()
    return hook


def bad(size=5, dtype=torch.float32):
    tensor = torch.ones(size, dtype=dtype)
    tensor[-1] = NAN
    return tensor


def test_a_nan_is_refused_by_name_and_nothing_is_issued(comm):
    checked(comm)
    issued = []
    comm.register_post_hook(lambda op_id, args: issued.append(op_id))
    with refused(torchcomms.InvalidArgument, "all_reduce", comm.get_name(), "input"):
        comm.all_reduce(bad(), ReduceOp.SUM, False)
    assert issued == []
    comm.all_reduce(torch.ones(5), ReduceOp.SUM, False)
    assert len(issued) == 1


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
     torch.float8_e4m3fn, torch.float8_e5m2],
    ids=str,
)  # fmt: skip
def test_every_type_that_has_nans_is_checked(comm, dtype):
    checked(comm)
    wide = torch.complex64 if dtype.is_complex else torch.float32
    comm.broadcast(torch.ones(3, dtype=wide).to(dtype), 0, False)
    with refused(RuntimeError, "broadcast", "input"):
        comm.broadcast(bad(dtype=wide).to(dtype), 0, False)


def test_infinity_integers_and_nothing_pass(comm):
    checked(comm, True, True)
    for tensor in (torch.tensor([INF, -INF]), torch.ones(3, dtype=torch.int32), torch.empty(0),
                   torch.ones(2, dtype=torch.bool)):  # fmt: skip
        comm.all_reduce(tensor, ReduceOp.MAX, False)


def test_a_tensor_that_requires_grad_is_checked_without_a_graph(comm):
    checked(comm)
    tensor = bad().requires_grad_()
    with refused(RuntimeError, "input"):
        comm.send(tensor, 0, False)


def test_outputs_are_checked_where_asked_for(comm):
    hook = checked(comm)
    comm.all_gather_single(bad(), torch.ones(5), False)
    comm.recv(bad(), 0, False)
    hook.unregister()
    assert not hook.is_enabled()
    checked(comm, False, True)
    comm.all_gather_single(torch.ones(5), bad(), False)
    with refused(RuntimeError, "all_gather_single", "output"):
        comm.all_gather_single(bad(), torch.ones(5), False)
    with refused(RuntimeError, "recv", "output"):
        comm.recv(bad(), 0, False)
    with refused(RuntimeError, "all_reduce", "output"):
        comm.all_reduce(bad(), ReduceOp.SUM, False)


def test_lists_are_checked_to_the_end(comm):
    checked(comm)
    with refused(RuntimeError, "reduce_scatter", "input"):
        comm.reduce_scatter(torch.zeros(5), [bad()], ReduceOp.SUM, False)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_is_forgotten(comm, name):
    """Full of NaNs, everything but a barrier is refused when both sides are checked."""
    checked(comm, True, True)
    given = arguments(name, 0, 1, lambda _s, shape: torch.full(shape, NAN))
    if name == "barrier":
        comm.barrier(False)
        return
    with refused(RuntimeError, name, comm.get_name()):
        getattr(comm, name)(*given.values(), False)


def test_batches_are_not_looked_into(comm):
    checked(comm, True, True)
    batch = comm.batch_op_create()
    batch.send(bad(), 0)
    batch.issue(True).wait()


def test_what_only_the_root_reads_is_checked_there_alone():
    hints = {"fake::rank": "1", "fake::size": "2"}
    comm = torchcomms.new_comm("fake", torch.device("cpu"), "not_root", hints=hints)
    checked(comm)
    comm.broadcast(bad(), 0, False)
    comm.scatter(torch.zeros(5), [bad(), bad()], 0, False)
    with refused(RuntimeError, "broadcast"):
        comm.broadcast(bad(), 1, False)
    comm.finalize()


def test_one_hook_serves_several_communicators(comm):
    other = torchcomms.new_comm("fake", torch.device("cpu"), "also_checked")
    hook = checked(comm)
    hook.register_with_comm(other)
    del hook
    for each in (comm, other):
        with refused(RuntimeError, each.get_name()):
            each.all_reduce(bad(), ReduceOp.SUM, False)
    other.finalize()


def test_registering_nothing_is_refused():
    with pytest.raises((TypeError, ValueError)):
        NanCheckHook().register_with_comm(None)
