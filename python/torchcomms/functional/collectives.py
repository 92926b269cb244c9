"""Differentiable collectives, each a custom operator of torch with a shape function.

Gradients are those of the sum of the losses of all ranks. So every rank that calls forward must
call backward. The operators are ordered side effects: a compiler keeps them and their order.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import torchcomms
from torchcomms.functional import _names, _operations
from torchcomms.functional._names import (
    comm_of,
    constant,
    name_of,
    op_name,
    premul_factor,
    reduce_op,
)

_NAMESPACE = "torchcomms"


def all_reduce(
    comm: torchcomms.TorchComm, tensor: Tensor, op: torchcomms.ReduceOp | str = "sum"
) -> Tensor:
    """Reduces the tensors of all ranks. Returns a new tensor.

    Args:
        comm: every rank of it makes this call.
        tensor: any shape, the same on all ranks.
        op: ReduceOp or its name; "premul_sum:<factor>" for PREMUL_SUM. Gradients exist for sum, avg
            and premul_sum.
    Raises:
        InvalidArgument: an unknown op. Otherwise as TorchComm.all_reduce.
    Cost: as TorchComm.all_reduce, and a copy of the tensor; the same again backward.
    """
    result: Tensor = _all_reduce(tensor, op_name(op), _group(comm, _names.memberships))
    return result


def all_gather(comm: torchcomms.TorchComm, tensor: Tensor) -> Tensor:
    """Concatenates the tensors of all ranks along dimension 0. Returns a new tensor.

    Args:
        comm: every rank of it makes this call.
        tensor: at least one dimension, the same shape on all ranks.
    Raises:
        InvalidArgument: a tensor without dimensions. Otherwise as TorchComm.all_gather_single.
    Cost: as TorchComm.all_gather_single; a reduce-scatter backward.
    """
    result: Tensor = _all_gather(tensor, _group(comm, _names.memberships))
    return result


def reduce_scatter(
    comm: torchcomms.TorchComm, tensor: Tensor, op: torchcomms.ReduceOp | str = "sum"
) -> Tensor:
    """Reduces the tensors of all ranks. Returns this rank's chunk along dimension 0.

    Args:
        comm: every rank of it makes this call.
        tensor: its rows divide by the number of ranks; the same shape on all ranks.
        op: see all_reduce.
    Raises:
        InvalidArgument: the rows do not divide. Otherwise as TorchComm.reduce_scatter_single.
    Cost: as TorchComm.reduce_scatter_single; an all-gather backward.
    """
    result: Tensor = _reduce_scatter(tensor, op_name(op), _group(comm, _names.memberships))
    return result


def all_to_all(
    comm: torchcomms.TorchComm,
    tensor: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
) -> Tensor:
    """Sends chunk `i` of the tensor to rank `i`. Returns the received chunks in rank order.

    Args:
        comm: every rank of it makes this call.
        tensor: at least one dimension; chunks are along dimension 0.
        output_split_sizes: rows received from each rank; both lists None: equal chunks.
        input_split_sizes: rows sent to each rank; their sum is the number of rows.
    Raises:
        InvalidArgument: one list without the other, rows that do not divide or add up. Otherwise as
            TorchComm.all_to_all_single.
    Cost: as TorchComm.all_to_all_single; the same again backward.
    """
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise torchcomms.InvalidArgument(
            "all_to_all: pass both output_split_sizes and input_split_sizes, or neither"
        )
    # Empty lists mean equal chunks: not every tracer supports an optional list of an operator.
    outputs = [] if output_split_sizes is None else list(output_split_sizes)
    inputs = [] if input_split_sizes is None else list(input_split_sizes)
    result: Tensor = _all_to_all(tensor, outputs, inputs, _group(comm, _names.memberships))
    return result


def _rows(op: str, tensor: Tensor) -> int:
    if tensor.dim() == 0:
        raise torchcomms.InvalidArgument(f"{op}: the tensor has no dimension 0")
    return tensor.size(0)


def _chunk_rows(op: str, tensor: Tensor, size: int) -> int:
    rows = _rows(op, tensor)
    if rows % size != 0:
        raise torchcomms.InvalidArgument(f"{op}: {rows} rows do not divide by {size} ranks")
    return rows // size


def _with_rows(tensor: Tensor, rows: int) -> Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


@torch.library.custom_op(f"{_NAMESPACE}::all_reduce", mutates_args=())
def _all_reduce(tensor: Tensor, op: str, comm: str) -> Tensor:
    out = tensor.clone(memory_format=torch.contiguous_format)
    comm_of(comm).all_reduce(out, reduce_op(op), False)
    return out


@_all_reduce.register_fake
def _(tensor: Tensor, op: str, comm: str) -> Tensor:
    return tensor.new_empty(tensor.shape)


@torch.library.custom_op(f"{_NAMESPACE}::all_gather", mutates_args=())
def _all_gather(tensor: Tensor, comm: str) -> Tensor:
    group = comm_of(comm)
    out = _with_rows(tensor, _rows("all_gather", tensor) * group.get_size())
    group.all_gather_single(out, tensor.contiguous(), False)
    return out


@_all_gather.register_fake
def _(tensor: Tensor, comm: str) -> Tensor:
    return _with_rows(tensor, _rows("all_gather", tensor) * comm_of(comm).get_size())


@torch.library.custom_op(f"{_NAMESPACE}::reduce_scatter", mutates_args=())
def _reduce_scatter(tensor: Tensor, op: str, comm: str) -> Tensor:
    group = comm_of(comm)
    out = _with_rows(tensor, _chunk_rows("reduce_scatter", tensor, group.get_size()))
    group.reduce_scatter_single(out, tensor.contiguous(), reduce_op(op), False)
    return out


@_reduce_scatter.register_fake
def _(tensor: Tensor, op: str, comm: str) -> Tensor:
    return _with_rows(tensor, _chunk_rows("reduce_scatter", tensor, comm_of(comm).get_size()))


@torch.library.custom_op(f"{_NAMESPACE}::all_to_all", mutates_args=())
def _all_to_all(
    tensor: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], comm: str
) -> Tensor:
    group = comm_of(comm)
    out = _with_rows(tensor, _received(tensor, output_split_sizes, input_split_sizes, comm))
    if not input_split_sizes:
        group.all_to_all_single(out, tensor.contiguous(), False)
    else:
        outputs, inputs = list(output_split_sizes), list(input_split_sizes)
        group.all_to_all_v_single(out, tensor.contiguous(), outputs, inputs, False)
    return out


@_all_to_all.register_fake
def _(
    tensor: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], comm: str
) -> Tensor:
    return _with_rows(tensor, _received(tensor, output_split_sizes, input_split_sizes, comm))


def _received(
    tensor: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], comm: str
) -> int:
    if not input_split_sizes:
        size = comm_of(comm).get_size()
        return _chunk_rows("all_to_all", tensor, size) * size
    if sum(input_split_sizes) != _rows("all_to_all", tensor):
        raise torchcomms.InvalidArgument(
            f"all_to_all: input_split_sizes add up to {sum(input_split_sizes)}, the tensor has"
            f" {tensor.size(0)} rows"
        )
    return sum(output_split_sizes)


def _gradient_factor(op: str, size: int) -> float:
    """The factor of the gradient relative to a sum's.

    Raises Unsupported if the op has no gradient.
    """
    factor = {"sum": 1.0, "avg": 1.0 / size}.get(op, premul_factor(op))
    if factor is None:
        raise torchcomms.Unsupported(
            f"reduce op {op!r} has no gradient: use sum, avg or premul_sum"
        )
    return factor


def _scaled(grad: Tensor, factor: float) -> Tensor:
    return grad if factor == 1.0 else grad * factor


def _keep_reduction(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    _, ctx.op, ctx.comm = inputs


def _all_reduce_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
    factor = _gradient_factor(ctx.op, comm_of(ctx.comm).get_size())
    return _scaled(_all_reduce(grad, "sum", ctx.comm), factor), None, None


def _reduce_scatter_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
    factor = _gradient_factor(ctx.op, comm_of(ctx.comm).get_size())
    return _scaled(_all_gather(grad, ctx.comm), factor), None, None


def _keep_comm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    ctx.comm = inputs[1]


def _all_gather_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
    return _reduce_scatter(grad, "sum", ctx.comm), None


def _keep_splits(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    _, ctx.outputs, ctx.inputs, ctx.comm = inputs


def _all_to_all_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
    return _all_to_all(grad, ctx.inputs, ctx.outputs, ctx.comm), None, None, None


_all_reduce.register_autograd(_all_reduce_backward, setup_context=_keep_reduction)
_all_gather.register_autograd(_all_gather_backward, setup_context=_keep_comm)
_reduce_scatter.register_autograd(_reduce_scatter_backward, setup_context=_keep_reduction)
_all_to_all.register_autograd(_all_to_all_backward, setup_context=_keep_splits)


@functools.cache
def _order_operators() -> None:
    """Makes the operators ordered side effects.

    So operators with unused results run too: peer ranks wait for them.
    """
    for operator in (_all_reduce, _all_gather, _reduce_scatter, _all_to_all):
        if hasattr(operator, "register_effect"):  # only newer torch versions have effects
            operator.register_effect(torch.library.EffectType.ORDERED)


@constant
def _group(comm: torchcomms.TorchComm, memberships: str) -> str:
    """The communicator's name. It is also called while a function is traced.

    `memberships` is not used; it adds a guard to graphs.
    """
    # Effects import parts of torch's compiler. That must be late, because `import
    # torch.distributed` may import this package.
    if "torch._dynamo" in sys.modules or "torch._higher_order_ops.effects" in sys.modules:
        _order_operators()
    return name_of(comm)


_operations.register()
