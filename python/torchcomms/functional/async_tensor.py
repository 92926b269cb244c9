"""Tensors that are results of asynchronous operations: their first use waits for the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

import torchcomms
from torchcomms.functional import _pending

_MODES = ("FAKE", "FUNCTIONAL", "PROXY")


def _are_we_tracing() -> bool:
    """Returns: whether operations are only recorded: compiled, faked, functionalized or traced."""
    if torch.compiler.is_compiling():
        return True
    if torch._C._len_torch_dispatch_stack() == 0:
        return False
    keys = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(getattr(keys, mode)) is not None for mode in _MODES)


class FakeWork:
    """The work of an operation in a graph. Its wait is an operation on the tensors written.

    Args:
        result: the tensor or tensors; None if the operation is complete.
        then: called after the wait.
    """

    def __init__(self, result: Any, then: Callable[[], None] | None = None) -> None:  # noqa: ANN401
        self.result = result
        self._then = then

    def wait(self) -> Any:  # noqa: ANN401
        """Orders what comes next after the operation.

        Returns: the outputs of the wait operation, so that no pass can move a use before the wait;
        None if the operation is complete.
        """
        waited = self.result
        if waited is not None:
            is_one = isinstance(waited, Tensor)
            tensors = [waited] if is_one else list(waited)
            waited = torch.ops.torchcomms.torchcomm_wait_tensors_(tensors)
            if is_one:
                waited = waited[0]
        if self._then is not None:
            self._then()
        return waited


class _OnceWaitWork:
    """One or several works that several tensors share. The first tensor used waits for them."""

    def __init__(self, work: Any) -> None:  # noqa: ANN401
        self._works = list(work) if isinstance(work, Sequence) else [work]

    def wait(self) -> None:
        """Waits at the first call. Later calls return at once."""
        while self._works:
            self._works[0].wait()  # a failed work stays, and fails again at the next wait
            self._works.pop(0)


class _Tied(torch.autograd.Function):
    """Passes the gradient of a waiting tensor on to the tensor itself.

    It is for functions that use the waiting tensor directly, as an autograd.Function does.
    """

    @staticmethod
    def forward(ctx: Any, waiting: Tensor, elem: Tensor) -> Tensor:  # noqa: ANN401
        ctx.mark_dirty(waiting)
        return waiting

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # noqa: ANN401
        return None, grad


class TorchCommsAsyncTensor(Tensor):
    """A tensor that an operation still writes to. Its first use waits for the work.

    Shape, type and device are known without a wait. A tensor whose work is None is complete.
    """

    elem: Tensor
    work: Any
    completed: bool
    _tied_to: Any  # grad_fn of the value that this tensor's gradient goes to

    @staticmethod
    def __new__(cls: Any, elem: Tensor, work: Any) -> TorchCommsAsyncTensor:  # noqa: ANN401
        wrapper: TorchCommsAsyncTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=elem.device,
        )
        wrapper.elem, wrapper.work, wrapper.completed, wrapper._tied_to = (
            elem,
            work,
            work is None,
            None,
        )
        wrapper._tie()
        return wrapper

    def _tie(self) -> None:
        """Connects the gradient to the current value of `elem`."""
        if not self.elem.requires_grad:
            return
        with torch._C.DisableTorchFunctionSubclass():
            grad_node = self.elem.grad_fn
            if self._tied_to is None or grad_node is not self._tied_to:
                with torch.enable_grad():
                    _Tied.apply(self, self.elem)
                self._tied_to = grad_node

    def trigger_wait(self) -> Tensor:
        """Waits if no use has waited yet. Returns the tensor itself."""
        if not self.completed:
            self.work.wait()
            self.completed = True
        return self.elem

    def wait(self) -> Tensor:
        """Waits as trigger_wait()."""
        return self.trigger_wait()

    @property
    def grad_fn(self) -> Any:  # type: ignore[override]  # noqa: ANN401
        """The grad_fn of `elem`."""
        return self.elem.grad_fn

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        """Whether `elem` is a leaf."""
        return self.elem.is_leaf

    @property
    def grad(self) -> Tensor | None:
        """The gradient of `elem`."""
        return self.elem.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.elem.grad = value

    def backward(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Waits, and calls backward() of `elem`."""
        self.trigger_wait().backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    def tolist(self) -> Any:  # noqa: ANN401
        """Waits, and calls tolist() of `elem`."""
        return self.trigger_wait().tolist()

    def numpy(self, *, force: bool = False) -> Any:  # noqa: ANN401
        """Waits, and calls numpy() of `elem`."""
        return self.trigger_wait().numpy(force=force)

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]  # noqa: ANN401
        state = repr(self.elem) if self.completed else f"in flight, {tuple(self.shape)}"
        return f"TorchCommsAsyncTensor({state})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None  # noqa: ANN401
    ) -> Any:  # noqa: ANN401  # fmt: skip
        if func in _KNOWN_AT_ONCE:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        used: list[TorchCommsAsyncTensor] = []
        args, kwargs = _waited((args, kwargs or {}), used)
        result = func(*args, **kwargs)
        for tensor in used:  # an in-place operation may have changed their values
            tensor._tie()
        return result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None  # noqa: ANN401
    ) -> Any:  # noqa: ANN401  # fmt: skip
        args, kwargs = _waited((args, kwargs or {}))
        return func(*args, **kwargs)


# Properties that need no wait.
_KNOWN_AT_ONCE = {
    getattr(Tensor, name).__get__
    for name in ("dtype", "device", "layout", "requires_grad", "shape", "ndim", "is_cpu", "is_cuda",
                 "is_meta", "is_sparse")
} | {
    getattr(Tensor, name)
    for name in ("size", "dim", "numel", "stride", "storage_offset", "element_size", "__len__",
                 "is_contiguous", "is_floating_point", "is_complex")
}  # fmt: skip


def _waited(arguments: Any, used: list[TorchCommsAsyncTensor] | None = None) -> Any:  # noqa: ANN401
    """Replaces waiting tensors by the tensors themselves, and appends the former to `used`."""

    def wait(tensor: TorchCommsAsyncTensor) -> Tensor:
        if used is not None:
            used.append(tensor)
        return tensor.trigger_wait()

    return tree_map_only(TorchCommsAsyncTensor, wait, arguments)


def _maybe_wrap_tensor(tensor: Tensor, work: Any) -> Tensor:  # noqa: ANN401
    """Wraps a tensor so that its first use waits; in a graph, adds an operator that waits."""
    if not _are_we_tracing():
        return TorchCommsAsyncTensor(tensor, work)
    waited: Tensor = torch.ops.torchcomms.torchcomm_wait_tensors([tensor])[0]
    return waited


def _wrap_result_with_registered_work(result: Any) -> Any:  # noqa: ANN401
    """Wraps the result of an operator in tensors that wait for its stored work.

    Raises:
        InvalidArgument: the result is neither a tensor nor a list of tensors.
    """
    if isinstance(result, Tensor):
        return _maybe_wrap_tensor(result, _OnceWaitWork(_pending.take([result])))
    if not isinstance(result, list | tuple) or not all(isinstance(one, Tensor) for one in result):
        raise torchcomms.InvalidArgument(
            f"the operator returned a {type(result).__name__}; allowed are a tensor and a list of"
            " tensors"
        )
    work = _OnceWaitWork(_pending.take(result))
    return [_maybe_wrap_tensor(tensor, work) for tensor in result]
