"""Eager calls after patching."""

from __future__ import annotations

import math

import torch
import torchcomms
from torch._subclasses.fake_tensor import FakeTensorMode
from torchcomms import ReduceOp

from tests.harness.cases import refused
from tests.python.compiled.cases import case, compiled, same


@case
def results_of_eager_calls_carry_grad(comm, backend):
    """The table of eager behaviour: with and without grad, synchronous and not."""
    from torchcomms.functional.async_tensor import TorchCommsAsyncTensor

    size = comm.get_size()
    total = sum(torch.arange(4.0) + r for r in range(size))

    def leaf():
        return (torch.arange(4.0) + comm.get_rank()).requires_grad_()

    for x in (leaf().detach(), leaf()):
        with torch.no_grad():
            assert isinstance(comm.all_reduce(x, ReduceOp.SUM, False), torchcomms.TorchWork)
        same(x.detach(), total)
    x = leaf()
    result = comm.all_reduce(x, ReduceOp.SUM, False)
    same((result.detach(), x.detach()), (total, total))
    (result * 3).sum().backward()
    same(x.grad, torch.full((4,), 3.0 * size))
    x = leaf()
    later = comm.all_reduce(x, ReduceOp.SUM, 1)  # anything with a truth value
    assert isinstance(later, TorchCommsAsyncTensor)
    assert later.shape == (4,)
    assert later.grad_fn is not None
    assert not later.is_leaf
    assert not later.completed, "looking at the shape is no use"
    (later * 3).sum().backward()
    assert later.completed
    same(x.grad, torch.full((4,), 3.0 * size))
    x = leaf()
    lists = comm.all_gather([torch.zeros(4) for _ in range(size)], x, True)
    assert all(isinstance(one, TorchCommsAsyncTensor) for one in lists)
    torch.stack([one * (i + 1) for i, one in enumerate(lists)]).sum().backward()
    same(x.grad, torch.full((4,), float(size * (comm.get_rank() + 1))))
    x = leaf()
    assert isinstance(comm.broadcast(x, 0, False), torchcomms.TorchWork), "it has no gradient"


@case
def what_is_under_way_is_waited_for_by_the_next_operation(comm, backend):
    """With its gradient, where there is one."""
    size, rank = comm.get_size(), comm.get_rank()

    def under_way():
        x = (torch.arange(4.0) + rank).requires_grad_()
        return x, comm.all_reduce(x * 1, ReduceOp.SUM, True)

    total = sum(torch.arange(4.0) + r for r in range(size))
    x, first = under_way()
    second = comm.all_reduce(first, ReduceOp.SUM, False)
    same(second.detach(), total * size)
    second.sum().backward()
    same(x.grad, torch.full((4,), float(size**2)))
    x, first = under_way()
    lists = comm.all_gather([torch.zeros(4) for _ in range(size)], tensor=first, async_op=True)
    comm.all_reduce(lists[0], ReduceOp.SUM, False).sum().backward()
    same(x.grad, torch.full((4,), float(size**2)))
    x, first = under_way()
    with torch.no_grad():
        comm.all_reduce(first, ReduceOp.SUM, False)
        same(first.wait(), total * size)
    x, first = under_way()
    batch, got = comm.batch_op_create(), torch.zeros(4)
    batch.send(first, (rank + 1) % size)
    batch.recv(got, (rank - 1) % size)
    batch.issue(False)
    same(got, total)


@case
def what_is_under_way_is_waited_for_by_windows(comm, backend):
    del comm
    world = torchcomms.new_comm("ctran", torch.device("cpu"), "kept")
    size = world.get_size()

    def under_way():
        return world.all_reduce(torch.ones(4, requires_grad=True) * 3, ReduceOp.SUM, True)

    whole = world.new_window(under_way())
    same(whole.get_tensor().detach(), torch.full((4,), 3.0 * size))
    window = world.new_window()
    window.tensor_register(under_way())
    same(window.get_tensor().detach(), torch.full((4,), 3.0 * size))
    world.finalize()


def changed(comm, x):
    y = x * 2
    comm.all_reduce(y, ReduceOp.SUM, False)
    return (y * y).sum()


def changed_later(comm, x):
    y = x * 2
    comm.all_reduce(y, ReduceOp.SUM, True).wait()
    return (y * y).sum()


def changed_in_part(comm, x):
    y = x * x
    comm.all_reduce(y[1:3], ReduceOp.SUM, False)
    return (y * y).sum()


def changed_as_a_view(comm, x):
    y = x * 1
    comm.all_reduce(y.view(2, -1), ReduceOp.AVG, False)
    return (y * y).sum()


def overwritten(comm, x):
    y = x * 2
    comm.all_to_all_single(y, x, False)
    return (y * y).sum()


@case
def a_tensor_that_was_changed_has_the_gradient_of_its_new_value(comm, backend):
    """Eager as compiled, where it is no leaf."""
    for step in (changed, changed_later, changed_in_part, changed_as_a_view, overwritten):
        seen = []
        for function in (step, compiled(step, backend)):
            x = (torch.arange(4.0) + comm.get_rank()).requires_grad_()
            loss = function(comm, x)
            loss.backward()
            seen.append((loss.detach(), x.grad))
        same(seen[0], seen[1])


@case
def what_cannot_have_a_gradient_of_its_own_leaves_it_to_the_result(comm, backend):
    """Buffers without gradient, and views of which one operation has made several."""
    size = comm.get_size()
    x = torch.arange(2.0).requires_grad_()
    out = torch.zeros(2 * size)
    for _ in range(2):
        result = comm.all_gather_single(out, x, False)
        assert not out.requires_grad
        assert result.requires_grad
    result.sum().backward()
    same(x.grad, torch.full((2,), float(size)))
    for views in (lambda t: t.unbind(0), lambda t: [t[i] for i in range(size)]):
        into = list(views((x * 1).repeat(size).view(size, 2)))
        x.grad = None
        torch.stack(comm.all_gather(into, x, False)).sum().backward()
        same(x.grad, torch.full((2,), float(size)))


@case
def what_has_no_gradient_says_so(comm, backend):
    x = torch.ones(3, requires_grad=True)
    result = comm.all_reduce(x, ReduceOp.MAX, False)
    with refused(torchcomms.Unsupported, "MAX", "SUM"):
        result.sum().backward()


@case
def a_saved_value_that_was_overwritten_is_noticed(comm, backend):
    x = torch.ones(3, requires_grad=True)
    y = x.exp()  # saves its result
    comm.all_reduce(y, ReduceOp.SUM, False)
    with refused(RuntimeError, "modified by an inplace operation"):
        y.sum().backward()


@case
def wrong_arguments_are_refused_with_grad_and_without(comm, backend):
    x = torch.ones(3)
    for tensor in (x, x.clone().requires_grad_(), x.to("meta")):
        for limit in (5, "5"):
            with refused(TypeError, "all_reduce()", "'timeout'", "float seconds"):
                comm.all_reduce(tensor, ReduceOp.SUM, False, timeout=limit)
        with refused(torchcomms.InvalidArgument, "all_reduce", "timeout is nan", "0 or more"):
            comm.all_reduce(tensor, ReduceOp.SUM, False, timeout=math.nan)
        for hints in ({"a": 1}, [], "a"):
            with refused(TypeError, "all_reduce()", "hints"):
                comm.all_reduce(tensor, ReduceOp.SUM, False, hints)
        with refused(TypeError, "all_reduce()", "missing", "async_op"):
            comm.all_reduce(tensor, ReduceOp.SUM)
    with FakeTensorMode():
        assert comm.all_reduce(torch.ones(3), ReduceOp.SUM) is None, "as in compiled code"
