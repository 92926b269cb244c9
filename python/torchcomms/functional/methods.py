"""Methods of communicators inside compiled functions, with TORCHCOMMS_PATCH_FOR_COMPILE=1.

Outside of torch.compile a method stays what it is. While a function is traced it becomes the
functional collective and a copy into the caller's tensor, so that graphs stay free of mutation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import torchcomms
from torchcomms.functional import collectives
from torchcomms.functional._names import constant

_TorchComm = torchcomms.TorchComm
_ReduceOp = torchcomms.ReduceOp


class TracedWork:
    """What a traced call returns: its result is in order, so waiting is nothing."""

    def wait(self) -> None:
        """Returns at once."""


def _traced(output: Tensor, result: Tensor, hints: object, timeout: object) -> TracedWork:
    if hints is not None or timeout is not None:
        raise torchcomms.Unsupported("hints and timeout cannot be traced: pass neither")
    output.copy_(result.reshape(output.shape))
    return TracedWork()


def _all_reduce(  # noqa: PLR0917 (the method's order)
    comm: _TorchComm,
    tensor: Tensor,
    op: _ReduceOp,
    async_op: bool = False,
    hints: object = None,
    timeout: object = None,
) -> TracedWork:
    return _traced(tensor, collectives.all_reduce(comm, tensor, op), hints, timeout)


def _all_gather_single(  # noqa: PLR0917 (the method's order)
    comm: _TorchComm,
    output: Tensor,
    input: Tensor,
    async_op: bool = False,
    hints: object = None,
    timeout: object = None,
) -> TracedWork:
    return _traced(output, collectives.all_gather(comm, input.reshape(-1)), hints, timeout)


def _reduce_scatter_single(  # noqa: PLR0917 (the method's order)
    comm: _TorchComm,
    output: Tensor,
    input: Tensor,
    op: _ReduceOp,
    async_op: bool = False,
    hints: object = None,
    timeout: object = None,
) -> TracedWork:
    result = collectives.reduce_scatter(comm, input.reshape(-1), op)
    return _traced(output, result, hints, timeout)


def _all_to_all_single(  # noqa: PLR0917 (the method's order)
    comm: _TorchComm,
    output: Tensor,
    input: Tensor,
    async_op: bool = False,
    hints: object = None,
    timeout: object = None,
) -> TracedWork:
    return _traced(output, collectives.all_to_all(comm, input.reshape(-1)), hints, timeout)


_TRACED = {
    "all_reduce": _all_reduce,
    "all_gather_single": _all_gather_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all_single": _all_to_all_single,
}
_NUMBERS = ("get_rank", "get_size")


def _like(function: Callable[..., Any], native: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = native.__name__
    function.__qualname__ = f"TorchComm.{native.__name__}"
    function.__doc__ = native.__doc__
    return function


def _operation(name: str) -> Callable[..., Any]:
    native: Any = getattr(_TorchComm, name)
    traced: Any = _TRACED[name]

    def method(self: _TorchComm, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if torch.compiler.is_compiling():
            return traced(self, *args, **kwargs)
        return native(self, *args, **kwargs)

    return _like(method, native)


def _number(name: str) -> Callable[..., Any]:
    native = getattr(_TorchComm, name)

    @constant
    def text(comm: _TorchComm) -> str:  # a text is a constant of a graph, a number may be a symbol
        return str(native(comm))

    def method(self: _TorchComm) -> int:
        return int(text(self)) if torch.compiler.is_compiling() else native(self)

    return _like(method, native)


def install() -> None:
    """Replaces the methods that can be traced; a second call changes nothing."""
    if getattr(_TorchComm, "_traceable", False):
        return
    replaced = {name: _operation(name) for name in _TRACED}
    replaced |= {name: _number(name) for name in _NUMBERS}
    for name, method in replaced.items():
        setattr(_TorchComm, name, method)
    _TorchComm._traceable = True  # type: ignore[attr-defined]
