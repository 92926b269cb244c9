"""The operations that graphs can contain, one row each: parameters, shapes, gradients.

Gradients are those of the sum of the losses of all ranks. So every rank that calls forward must
call backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import torchcomms
from torchcomms._dtype import dtype_name
from torchcomms.functional.param_parsing import ParamKind, ParamSpec
from torchcomms.functional.registry import operator, register_collective

_Op = torchcomms.RedOpType
_native_issue: Any = torchcomms.BatchSendRecv.issue
_native_map: Any = torchcomms.TorchCommWindow.map_remote_tensor
_Backward = Callable[..., tuple[Any, ...]]


def _changed(name: str, write_only: bool = True, older: tuple[str, ...] = ()) -> ParamSpec:
    return ParamSpec(name, ParamKind.INPUT, Tensor, write_only=write_only, older=older)


def _changed_list(name: str, older: tuple[str, ...] = ()) -> ParamSpec:
    return ParamSpec(name, ParamKind.INPUT, list[Tensor], write_only=True, older=older)


def _read(name: str, older: tuple[str, ...] = ()) -> ParamSpec:
    return ParamSpec(name, ParamKind.INPUT, Tensor, mutable=False, older=older)


def _read_list(name: str, older: tuple[str, ...] = ()) -> ParamSpec:
    return ParamSpec(name, ParamKind.INPUT, list[Tensor], mutable=False, older=older)


def _extra(name: str, kind: Any = int, older: tuple[str, ...] = ()) -> ParamSpec:  # noqa: ANN401
    return ParamSpec(name, ParamKind.EXTRA, kind, older=older)


_ASYNC = ParamSpec("async_op", ParamKind.EXTRA, bool, False)
_OPTIONS = (
    _ASYNC,
    ParamSpec("hints", ParamKind.EXTRA, dict[str, str] | None, None),
    ParamSpec("timeout", ParamKind.EXTRA, torchcomms.Timeout | None, None),
)
_OP = _extra("op", torchcomms.ReduceOp)
_ROOT = _extra("root")


def _scaled(grad: Tensor, op: torchcomms.ReduceOp, size: int) -> Tensor:
    """Scales the gradient of a sum to that of `op`. Raises Unsupported if `op` has no gradient."""
    factor = {_Op.SUM: 1.0, _Op.AVG: 1.0 / size, _Op.PREMUL_SUM: op._factor}.get(op.type)
    if factor is None:
        raise torchcomms.Unsupported(
            f"reduce op {op!r} has no gradient: use SUM, AVG or PREMUL_SUM"
        )
    return grad if isinstance(factor, float) and factor == 1.0 else grad * factor


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
    """Saves what backward needs: everything except the values of tensors."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    ctx.shapes = [tuple(tensor.shape) for tensor in tensors]
    ctx.inputs = [None if isinstance(value, Tensor) else value for value in inputs]
    ctx.dtype = tensors[0].dtype if tensors else None
    ctx.comm = inputs[0]
    ctx.options = inputs[-2:]  # the hints and the timeout


def _run(name: str, ctx: Any, *tensors: Any, extra: Sequence[Any] = ()) -> Any:  # noqa: ANN401
    return operator(f"torchcomm_{name}")(ctx.comm, *tensors, *extra, False, *ctx.options)


def _all_reduce_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    op = ctx.inputs[2]
    if op.type == _Op.AVG:
        return None, _run("all_reduce", ctx, grad, extra=[op]), None, None, None, None
    summed = _run("all_reduce", ctx, grad, extra=[torchcomms.ReduceOp.SUM])
    return None, _scaled(summed, op, 1), None, None, None, None


def _all_gather_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:  # noqa: ANN401
    mine = grads[0].new_empty(ctx.shapes[0])
    total = _run("reduce_scatter", ctx, mine, list(grads), extra=[torchcomms.ReduceOp.SUM])
    return None, [None] * len(grads), total, None, None, None


def _reduce_scatter_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    size, op = len(ctx.list_shapes), ctx.inputs[3]
    grads = _run("all_gather", ctx, [grad.new_empty(shape) for shape in ctx.list_shapes], grad)
    return None, None, [_scaled(one, op, size) for one in grads], None, None, None, None


def _keep_list_free(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
    """Saves what _keep saves, and of the list of tensors only the shapes."""
    _keep(ctx, inputs, output)
    lists = [value for value in inputs if isinstance(value, list | tuple)]
    ctx.list_shapes = [tuple(tensor.shape) for tensor in lists[0]]
    ctx.inputs = [
        [None] * len(value) if isinstance(value, list | tuple) and value else value
        for value in ctx.inputs
    ]


def _all_gather_single_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    mine = grad.new_empty(ctx.shapes[1])
    total = _run("reduce_scatter_single", ctx, mine, grad, extra=[torchcomms.ReduceOp.SUM])
    return None, None, total, None, None, None


def _reduce_scatter_single_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    whole = grad.new_empty(ctx.shapes[1])
    grads = _run("all_gather_single", ctx, whole, grad)
    size = whole.numel() // max(grad.numel(), 1)
    return None, None, _scaled(grads, ctx.inputs[3], max(size, 1)), None, None, None, None


def _all_to_all_single_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    back = _run("all_to_all_single", ctx, grad.new_empty(ctx.shapes[1]), grad)
    return None, None, back, None, None, None


def _all_to_all_v_single_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    received, sent = ctx.inputs[3], ctx.inputs[4]
    (rows, *_), shape = ctx.shapes
    arrived = sum(received)
    # Rows that were not sent have no gradient. Output rows without received data keep their
    # gradient.
    mine = grad.new_zeros(shape) if sum(sent) < shape[0] else grad.new_empty(shape)
    back = _run("all_to_all_v_single_", ctx, mine, grad, extra=[sent, received])
    kept = None
    if arrived < rows:
        kept = torch.cat([torch.zeros_like(grad[:arrived]), grad[arrived:]])
    return None, kept, back, None, None, None, None, None


class Row(NamedTuple):
    """An operation of a class: its parameters, result and gradient."""

    method: str
    params: tuple[ParamSpec, ...]
    backward: _Backward | None = None
    setup_context: Callable[..., None] | None = None
    meta: Callable[..., Any] | None = None
    native: Callable[..., Any] | None = None  # the function that runs; None: the method


def _issue(batch: Any, received: list[Tensor], async_op: bool) -> Any:  # noqa: ANN401
    return _native_issue(batch, async_op)


def _map_remote_tensor(window: Any, rank: int) -> Tensor:  # noqa: ANN401
    """Returns a copy of the mapped tensor: a graph owns its tensors and may write to them."""
    mapped = _native_map(window, rank)
    if list(mapped.shape) != list(window.shape) or mapped.dtype != window.dtype:
        raise torchcomms.InvalidArgument(
            f"map_remote_tensor: rank {rank} registered {dtype_name(mapped.dtype)}"
            f" {list(mapped.shape)}; in a graph it must be as on this rank,"
            f" {dtype_name(window.dtype)} {list(window.shape)}"
        )
    copy: Tensor = mapped.clone()
    return copy


def _remote_tensor(window: Any, rank: int) -> Tensor:  # noqa: ANN401
    """The shape of the result of map_remote_tensor: that of this rank's part of the window."""
    return torch.empty(tuple(window.shape), dtype=window.dtype, device=window.device)


ROWS: dict[type, tuple[Row, ...]] = {
    torchcomms.TorchComm: (
        Row("send", (_read("tensor"), _extra("dst"), *_OPTIONS)),
        Row("recv", (_changed("tensor"), _extra("src"), *_OPTIONS)),
        Row("broadcast", (_changed("tensor", write_only=False), _ROOT, *_OPTIONS)),
        Row(
            "all_reduce", (_changed("tensor", write_only=False), _OP, *_OPTIONS),
            _all_reduce_backward, _keep,
        ),
        Row("reduce", (_changed("tensor", write_only=False), _ROOT, _OP, *_OPTIONS)),
        Row(
            "all_gather", (_changed_list("tensor_list"), _read("tensor"), *_OPTIONS),
            _all_gather_backward, _keep_list_free,
        ),
        Row("all_gather_v", (_changed_list("tensor_list"), _read("tensor"), *_OPTIONS)),
        Row(
            "all_gather_single", (_changed("output"), _read("input"), *_OPTIONS),
            _all_gather_single_backward, _keep,
        ),
        Row(
            "reduce_scatter", (_changed("output"), _read_list("input_list"), _OP, *_OPTIONS),
            _reduce_scatter_backward, _keep_list_free,
        ),
        Row("reduce_scatter_v", (_changed("output"), _read_list("input_list"), _OP, *_OPTIONS)),
        Row(
            "reduce_scatter_single", (_changed("output"), _read("input"), _OP, *_OPTIONS),
            _reduce_scatter_single_backward, _keep,
        ),
        Row(
            "all_to_all_single", (_changed("output"), _read("input"), *_OPTIONS),
            _all_to_all_single_backward, _keep,
        ),
        Row(
            "all_to_all_v_single",
            (
                # Rows beyond the sum of the split sizes are unchanged.
                _changed("output", write_only=False), _read("input"),
                _extra("output_split_sizes", list[int], ("output_splits",)),
                _extra("input_split_sizes", list[int], ("input_splits",)), *_OPTIONS,
            ),
            _all_to_all_v_single_backward, _keep,
        ),
        Row(
            "all_to_all",
            (
                _changed_list("output_tensor_list", ("output_list",)),
                _read_list("input_tensor_list", ("input_list",)), *_OPTIONS,
            ),
        ),
        Row("barrier", _OPTIONS),
        Row(
            "scatter",
            (
                _changed("output_tensor", older=("output",)),
                _read_list("input_tensor_list", ("input_list",)), _ROOT, *_OPTIONS,
            ),
        ),
        Row(
            "gather",
            (
                # Only the list of the root is written; the lists of other ranks are unchanged.
                ParamSpec(
                    "output_tensor_list", ParamKind.INPUT, list[Tensor], older=("output_list",)
                ),
                _read("input_tensor", ("input",)), _ROOT, *_OPTIONS,
            ),
        ),
        Row(
            "gather_single",
            (_changed("output", write_only=False), _read("input"), _ROOT, *_OPTIONS),
        ),
    ),
    torchcomms.TorchCommWindow: (
        Row(
            "put",
            (
                _read("tensor"), _extra("dst_rank"),
                _extra("target_disp", older=("target_offset_nelems", "offset")), _ASYNC,
            ),
        ),
        Row("signal", (_extra("dst_rank", older=("peer_rank",)), _ASYNC)),
        Row("wait_signal", (_extra("peer_rank"), _ASYNC)),
        Row(
            "map_remote_tensor",
            (_extra("rank"), ParamSpec("remote", ParamKind.OUTPUT, Tensor)),
            meta=_remote_tensor, native=_map_remote_tensor,
        ),
    ),
    torchcomms.BatchSendRecv: (
        Row("send", (_read("tensor"), _extra("dst"))),
        Row("recv", (_changed("tensor", write_only=False), _extra("src"))),
        # In graphs `issue` takes the tensors of the earlier receives, because it writes to them.
        Row("issue", (_changed_list("received"), _ASYNC), native=_issue),
    ),
}  # fmt: skip


def register() -> None:
    """Registers all rows."""
    for cls, rows in ROWS.items():
        for row in rows:
            register_collective(
                cls, row.method, row.params, row.meta, row.backward, row.setup_context, row.native
            )
