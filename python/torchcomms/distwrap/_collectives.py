"""The collectives, on the group's communicator, or on torch's group if torchcomms is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed import distributed_c10d as c10d

import torchcomms
from torchcomms.distwrap import utils
from torchcomms.distwrap._ranks import group_rank, reduce_op

Tensor = torch.Tensor
_SUM = dist.ReduceOp.SUM


class Works:
    """Several operations of torch as one work."""

    def __init__(self, works: list[Any], after: Callable[[], None] | None = None) -> None:
        self._works = works
        self._after = after

    def wait(self) -> bool:
        """Returns True when all operations are done."""
        for work in self._works:
            work.wait()
        after, self._after = self._after, None
        if after is not None:
            after()
        return True

    def is_completed(self) -> bool:
        """Returns: whether all operations are done and the results are in place."""
        return self._after is None and all(work.is_completed() for work in self._works)


def comm_for(group: ProcessGroup | None, tensor: Tensor) -> torchcomms.TorchComm | None:
    """The group's communicator for the tensor's device, or None if torch does the work."""
    if not utils.torchcomms_is_enabled():
        return None
    return utils.get_torchcomms_instance(utils.get_group(group), tensor=tensor)


def _own(work: torchcomms.TorchWork, async_op: bool) -> torchcomms.TorchWork | None:
    return work if async_op else None


def _torch(works: list[Any], async_op: bool, after: Callable[[], None] | None = None) -> Any:  # noqa: ANN401
    done = Works([work for work in works if work is not None], after)
    if async_op:
        return done
    done.wait()
    return None


def _uneven(tensors: list[Tensor]) -> bool:
    return len({tensor.numel() for tensor in tensors}) > 1


def _on_gloo(group: ProcessGroup, tensor: Tensor) -> bool:
    return group._get_backend(tensor.device).name() == "gloo"


def all_reduce(
    tensor: Tensor,
    op: Any = _SUM,  # noqa: ANN401
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Reduces `tensor` over all ranks, in place.

    Args:
        tensor: contiguous, the same shape and dtype on all ranks.
        op: a reduce op of torch.distributed or of torchcomms.
        group: the process group; None: the default group.
        async_op: True returns at once.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument (a ValueError): the group has no communicator for the tensor's device, or
            `op` is not supported.
        CommError: as the operation of the communicator. Without torchcomms, torch's own errors.
    """
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.all_reduce(tensor, op, group, async_op)
    return _own(comm.all_reduce(tensor, reduce_op(op), async_op), async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:  # noqa: ANN401
    """Copies the tensor of one rank to the tensors of all ranks.

    Args:
        tensor: contiguous, as many elements on all ranks; in place.
        src: global rank whose tensor is sent; exactly one of `src` and `group_src` must be given.
        group_src: the same rank as a rank of the group.
        group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument (a ValueError): none or both of `src` and `group_src`, or a rank that is not
            in the group.
        CommError: see all_reduce.
    """
    root = group_rank(utils.get_group(group), src, group_src, "src")
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.broadcast(tensor, group=group, async_op=async_op, group_src=root)
    return _own(comm.broadcast(tensor, root, async_op), async_op)


def reduce(  # noqa: PLR0917 (the contract's order)
    tensor: Tensor,
    dst: int | None = None,
    op: Any = _SUM,  # noqa: ANN401
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:  # noqa: ANN401
    """Reduces `tensor` over all ranks into the tensor of one rank.

    Args:
        tensor: contiguous, the same shape and dtype on all ranks; the result is in that of the
            target.
        dst: global rank of the target; exactly one of `dst` and `group_dst` must be given.
        op, group, async_op: see all_reduce.
        group_dst: the target as a rank of the group.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see broadcast.
    """
    root = group_rank(utils.get_group(group), dst, group_dst, "dst")
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.reduce(tensor, op=op, group=group, async_op=async_op, group_dst=root)
    return _own(comm.reduce(tensor, root, reduce_op(op), async_op), async_op)


def all_gather(
    tensor_list: list[Tensor],
    tensor: Tensor,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Puts every rank's tensor into the list of each rank, in rank order.

    Args:
        tensor_list: one tensor per rank, each of the size of that rank's `tensor`; sizes may
            differ.
        tensor: the tensor of this rank.
        group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see all_reduce.
    """
    comm = comm_for(group, tensor)
    if comm is not None:
        gather_ = comm.all_gather_v if _uneven(tensor_list) else comm.all_gather
        return _own(gather_(tensor_list, tensor, async_op), async_op)
    chosen = utils.get_group(group)
    if not (_uneven(tensor_list) and _on_gloo(chosen, tensor)):
        return c10d.all_gather(tensor_list, tensor, group, async_op)
    tensor_list[chosen.rank()].copy_(tensor)
    works = [
        c10d.broadcast(slot, group=group, async_op=True, group_src=rank)
        for rank, slot in enumerate(tensor_list)
    ]
    return _torch(works, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Concatenates the inputs of all ranks in the output of each rank, in rank order.

    Args:
        output_tensor: N times as many elements as `input_tensor`, for N ranks.
        input_tensor: contiguous, as many elements on all ranks.
        group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see all_reduce.
    """
    comm = comm_for(group, input_tensor)
    if comm is None:
        return c10d.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)
    return _own(comm.all_gather_single(output_tensor, input_tensor, async_op), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = _SUM,  # noqa: ANN401
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Reduces element `r` of every rank's list into the output of rank `r`.

    Args:
        output: the size of this rank's element.
        input_list: one tensor per rank, equal lists of sizes on all ranks; sizes may differ.
        op, group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see all_reduce.
    """
    comm = comm_for(group, output)
    if comm is not None:
        scatter_ = comm.reduce_scatter_v if _uneven(input_list) else comm.reduce_scatter
        return _own(scatter_(output, input_list, reduce_op(op), async_op), async_op)
    chosen = utils.get_group(group)
    if not (_uneven(input_list) and _on_gloo(chosen, output)):
        return c10d.reduce_scatter(output, input_list, op, group, async_op)
    # Copies, because torch's reduce may write to the tensors of all ranks.
    slots = [slot.clone() for slot in input_list]
    works = [
        c10d.reduce(slot, op=op, group=group, async_op=True, group_dst=rank)
        for rank, slot in enumerate(slots)
    ]
    return _torch(works, async_op, lambda: _copy([output], [slots[chosen.rank()]]))


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source.view_as(target))


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = _SUM,  # noqa: ANN401
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Reduces the inputs of all ranks; chunk `r` of the result is the output of rank `r`.

    Args:
        output: 1/N of the elements of `input`, for N ranks.
        input: contiguous, as many elements on all ranks.
        op, group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see all_reduce.
    """
    comm = comm_for(group, output)
    if comm is None:
        return c10d.reduce_scatter_tensor(output, input, op, group, async_op)
    return _own(comm.reduce_scatter_single(output, input, reduce_op(op), async_op), async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Sends element `i` of the input list to rank `i`, into that rank's output element of this
    rank.

    Args:
        output_tensor_list: one tensor per rank, of the size that the rank sends.
        input_tensor_list: one tensor per rank.
        group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see all_reduce.
    """
    comm = comm_for(group, output_tensor_list[0])
    if comm is not None:
        return _own(comm.all_to_all(output_tensor_list, input_tensor_list, async_op), async_op)
    chosen = utils.get_group(group)
    if not _on_gloo(chosen, output_tensor_list[0]):
        return c10d.all_to_all(output_tensor_list, input_tensor_list, group, async_op)
    own = chosen.rank()
    output_tensor_list[own].copy_(input_tensor_list[own])
    peers = [rank for rank in range(chosen.size()) if rank != own]
    works = [c10d.irecv(output_tensor_list[r], group=group, group_src=r) for r in peers]
    works += [c10d.isend(input_tensor_list[r], group=group, group_dst=r) for r in peers]
    return _torch(works, async_op)


def all_to_all_single(  # noqa: PLR0917 (the contract's order)
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Sends chunk `i` of the input to rank `i`; chunk `i` of the output comes from rank `i`.

    Args:
        output: room for all chunks that this rank receives.
        input: the chunks for all ranks.
        output_split_sizes: rows of the first dimension in each chunk of the output; None: equal
            chunks.
        input_split_sizes: rows of the first dimension in each chunk of the input; None: equal
            chunks.
        group, async_op: see all_reduce.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument: only one split is given, and the rows of the other tensor do not divide by
            the number of ranks.
        CommError: see all_reduce.
    """
    comm = comm_for(group, input)
    if comm is None:
        return c10d.all_to_all_single(
            output, input, output_split_sizes, input_split_sizes, group, async_op
        )
    if not output_split_sizes and not input_split_sizes:
        return _own(comm.all_to_all_single(output, input, async_op), async_op)
    rows_out, rows_in = (
        list(given) if given else _equal_rows(tensor, comm)
        for given, tensor in ((output_split_sizes, output), (input_split_sizes, input))
    )
    return _own(comm.all_to_all_v_single(output, input, rows_out, rows_in, async_op), async_op)


def _equal_rows(tensor: Tensor, comm: torchcomms.TorchComm) -> list[int]:
    rows, rest = divmod(tensor.size(0), comm.get_size())
    if rest:
        raise torchcomms.InvalidArgument(
            f"all_to_all_single: {tensor.size(0)} rows do not divide by {comm.get_size()} ranks"
        )
    return [rows] * comm.get_size()


def scatter(  # noqa: PLR0917 (the contract's order)
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:  # noqa: ANN401
    """Sends each rank its element of the list of one rank.

    Args:
        tensor: receives this rank's element.
        scatter_list: on the source one tensor per rank, of equal sizes; elsewhere None.
        src: global rank of the source; exactly one of `src` and `group_src` must be given.
        group, async_op: see all_reduce.
        group_src: the source as a rank of the group.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see broadcast.
    """
    root = group_rank(utils.get_group(group), src, group_src, "src")
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.scatter(tensor, scatter_list, group=group, async_op=async_op, group_src=root)
    return _own(comm.scatter(tensor, scatter_list or [], root, async_op), async_op)


def gather(  # noqa: PLR0917 (the contract's order)
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:  # noqa: ANN401
    """Puts every rank's tensor into the list of one rank, in rank order.

    Args:
        tensor: contiguous, as many elements on all ranks.
        gather_list: on the target one tensor per rank, of the size of `tensor`; elsewhere None.
        dst: global rank of the target; exactly one of `dst` and `group_dst` must be given.
        group, async_op: see all_reduce.
        group_dst: the target as a rank of the group.
    Returns:
        A work if `async_op`, else None.
    Raises:
        InvalidArgument, CommError: see broadcast.
    """
    root = group_rank(utils.get_group(group), dst, group_dst, "dst")
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.gather(tensor, gather_list, group=group, async_op=async_op, group_dst=root)
    return _own(comm.gather(gather_list or [], tensor, root, async_op), async_op)


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: list[int] | None = None
) -> Any:  # noqa: ANN401
    """Returns when every rank has entered; with torchcomms on the group's first communicator.

    Args:
        group: the process group; None: the default group.
        async_op: True returns a work at once.
        device_ids: as in torch.distributed; ignored with torchcomms.
    """
    if not utils.torchcomms_is_enabled():
        return c10d.barrier(group, async_op, device_ids)
    return _own(utils.get_torchcomms_instance(utils.get_group(group)).barrier(async_op), async_op)


def reduce_scatter_quantized(  # noqa: PLR0917 (the contract's order)
    output: Tensor,
    input: Tensor,
    op: Any,  # noqa: ANN401
    seed: Tensor,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Reduces and scatters with fewer bits per element; only with backend ncclx.

    Args:
        output: 1/N of the elements of `input`, for N ranks.
        input: contiguous, as many elements on all ranks.
        op, group, async_op: see all_reduce.
        seed: the seed of the rounding.
    Raises:
        AssertionError: torchcomms is off, or the communicator's backend is not ncclx.
    """
    comm = comm_for(group, output)
    if comm is None or comm.get_backend() != "ncclx":
        raise AssertionError("reduce_scatter_quantized needs torchcomms with backend ncclx")
    native: Any = comm.get_backend_impl()
    return _own(
        native.reduce_scatter_quantized(output, input, reduce_op(op), seed, async_op), async_op
    )
