"""functional.async_tensor: tensors that wait when they are used. Without compile support, too."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
import torchcomms
from torchcomms.functional import _pending, async_tensor
from torchcomms.functional.async_tensor import FakeWork, TorchCommsAsyncTensor, _OnceWaitWork


class CountingWork:
    """Counts its waits; fails as often as it is told to."""

    def __init__(self, failures=0):
        self.waits, self.failures, self.done = 0, failures, False

    def wait(self):
        self.waits += 1
        if self.failures:
            self.failures -= 1
            raise torchcomms.CommTimeout("late")

    def is_completed(self):
        return self.done


def made(**options):
    work = CountingWork()
    return TorchCommsAsyncTensor(torch.arange(4.0, **options), work), work


def test_what_is_known_at_once_does_not_wait():
    tensor, work = made()
    assert tensor.shape == (4,)
    assert (tensor.size(0), tensor.dim(), tensor.numel(), len(tensor)) == (4, 1, 4, 4)
    assert (tensor.dtype, tensor.device) == (torch.float32, torch.device("cpu"))
    assert not tensor.requires_grad
    assert "in flight" in repr(tensor)
    assert (work.waits, tensor.completed) == (0, False)


@pytest.mark.parametrize(
    "use",
    [lambda t: t + 1, lambda t: torch.stack([t, t]), lambda t: t.sum(), lambda t: t[1:],
     lambda t: t.tolist(), lambda t: t.numpy(), lambda t: t.wait(), lambda t: t.trigger_wait(),
     lambda t: t.add_(1), lambda t: torch.zeros(4).copy_(t), lambda t: t.data_ptr(),
     lambda t: torch.ops.aten.add.Tensor(t, t)],
)  # fmt: skip
def test_the_first_use_waits_and_only_that(use):
    tensor, work = made()
    use(tensor)
    use(tensor)
    assert (work.waits, tensor.completed) == (1, True)
    assert "tensor(" in repr(tensor)


def test_without_a_work_it_is_complete():
    elem = torch.arange(4.0)
    tensor = TorchCommsAsyncTensor(elem, None)
    assert tensor.completed
    assert tensor.work is None
    assert "tensor(" in repr(tensor)
    assert tensor.wait() is elem
    assert tensor.trigger_wait() is elem
    assert torch.equal(tensor + 1, torch.arange(4.0) + 1)


def test_what_comes_of_it_is_a_plain_tensor():
    tensor, _ = made()
    assert type(tensor * 2) is torch.Tensor
    assert torch.equal(tensor * 2, torch.arange(4.0) * 2)
    assert tensor.wait() is tensor.elem


def test_gradients_are_those_of_the_tensor_itself():
    x = torch.arange(4.0, requires_grad=True)
    y = x * 2
    tensor = TorchCommsAsyncTensor(y, CountingWork())
    assert tensor.grad_fn is y.grad_fn
    assert not tensor.is_leaf
    tensor.backward(torch.ones(4))
    assert torch.equal(x.grad, torch.full((4,), 2.0))
    leaf = TorchCommsAsyncTensor(x, CountingWork())
    assert leaf.is_leaf
    assert leaf.grad is x.grad
    leaf.grad = None
    assert x.grad is None


class Doubled(torch.autograd.Function):
    """A function of a user: it is given the tensor that waits, as it is."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize(
    "function",
    [Doubled.apply,
     lambda t: torch.utils.checkpoint.checkpoint(lambda x: x * 2, t, use_reentrant=True)],
    ids=["function", "checkpoint"],
)  # fmt: skip
def test_gradients_pass_through_functions_of_users(function):
    x = torch.arange(4.0, requires_grad=True)
    work = CountingWork()
    tensor = TorchCommsAsyncTensor(x * 3, work)
    assert tensor.requires_grad
    function(tensor).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 6.0))
    assert work.waits == 1


def test_such_a_function_has_the_gradient_of_the_value_that_it_takes():
    x = torch.arange(4.0, requires_grad=True)
    tensor = TorchCommsAsyncTensor(x * 3, CountingWork())
    tensor.mul_(5)
    Doubled.apply(tensor).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 30.0))
    with torch.no_grad():
        tensor = TorchCommsAsyncTensor(x.detach(), CountingWork())
    assert not tensor.requires_grad
    assert not Doubled.apply(tensor).requires_grad


def test_a_failed_wait_fails_again():
    work = CountingWork(failures=2)
    tensor = TorchCommsAsyncTensor(torch.zeros(1), _OnceWaitWork(work))
    for _ in range(2):
        with pytest.raises(torchcomms.CommTimeout):
            tensor.wait()
        assert not tensor.completed
    tensor.wait()
    assert work.waits == 3


def test_tensors_that_share_a_work_wait_once():
    works = [CountingWork(), CountingWork()]
    shared = _OnceWaitWork(works)
    tensors = [TorchCommsAsyncTensor(torch.zeros(1), shared) for _ in range(3)]
    torch.stack(tensors)
    assert [work.waits for work in works] == [1, 1]


def test_results_are_wrapped_with_the_work_that_writes_to_them():
    one, other, work = torch.zeros(2), torch.zeros(2), CountingWork()
    _pending.remember([one, other], work)
    wrapped = async_tensor._wrap_result_with_registered_work([one, other])
    assert all(isinstance(tensor, TorchCommsAsyncTensor) for tensor in wrapped)
    wrapped[0].wait()
    wrapped[1].wait()
    assert work.waits == 1
    single = async_tensor._wrap_result_with_registered_work(one)
    assert isinstance(single, TorchCommsAsyncTensor)
    single.wait()
    assert work.waits == 1, "it was taken before"
    with pytest.raises(torchcomms.InvalidArgument, match=r"int.*allowed"):
        async_tensor._wrap_result_with_registered_work(3)


class TestWorksByTensor:
    def test_a_view_finds_the_work_of_its_memory(self):
        tensor, work = torch.zeros(4), CountingWork()
        _pending.remember([tensor], work)
        _pending.wait([tensor[1:3]])
        _pending.wait([tensor])
        assert work.waits == 1

    def test_a_work_that_is_done_or_whose_memory_is_gone_is_forgotten(self):
        done, kept, lost = CountingWork(), CountingWork(), CountingWork()
        first, second = torch.zeros(1), torch.zeros(1)
        _pending.remember([first], done)
        _pending.remember([second], kept)
        _pending.remember([torch.zeros(1)], lost)
        done.done = True
        _pending.remember([torch.zeros(1)], CountingWork())
        assert _pending.take([first]) == []
        assert _pending.take([second]) == [kept]
        _pending.remember([first], done)
        known = [work for entries in _pending._works.values() for _, work in entries]
        assert lost not in known
        _pending.take([first])


def test_a_work_without_result_is_over():
    after = []
    assert FakeWork(None, lambda: after.append(1)).wait() is None
    assert after == [1]


def test_whether_operations_are_only_looked_at():
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert not async_tensor._are_we_tracing()
    with FakeTensorMode():
        assert async_tensor._are_we_tracing()
    assert isinstance(
        async_tensor._maybe_wrap_tensor(torch.zeros(1), CountingWork()), TorchCommsAsyncTensor
    )
