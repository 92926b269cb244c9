"""The collectives: on the group's communicator, or on torch's group where that can do it."""

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
    """Several operations of torch that stand for one."""

    def __init__(self, works: list[Any], after: Callable[[], None] | None = None) -> None:
        self._works = works
        self._after = after

    def wait(self) -> bool:
        """Returns when all are done."""
        for work in self._works:
            work.wait()
        after, self._after = self._after, None
        if after is not None:
            after()
        return True

    def is_completed(self) -> bool:
        """Whether all are done, and the results are in place."""
        return self._after is None and all(work.is_completed() for work in self._works)


def comm_for(group: ProcessGroup | None, tensor: Tensor) -> torchcomms.TorchComm | None:
    """The communicator, or None where torch does the work."""
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
    """Reduces `tensor` over all ranks, in place. Returns a work if `async_op`, else None."""
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
    """Gives every rank the content of `src` (global rank), or of `group_src`."""
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
    """Reduces `tensor` over all ranks into that of `dst` (global rank), or of `group_dst`."""
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
    """Puts every rank's tensor into everyone's list; they may differ in size."""
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
    """Puts every rank's input into everyone's output, one after the other."""
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
    """Reduces everyone's slot `r` into rank `r`'s output; slots may differ in size."""
    comm = comm_for(group, output)
    if comm is not None:
        scatter_ = comm.reduce_scatter_v if _uneven(input_list) else comm.reduce_scatter
        return _own(scatter_(output, input_list, reduce_op(op), async_op), async_op)
    chosen = utils.get_group(group)
    if not (_uneven(input_list) and _on_gloo(chosen, output)):
        return c10d.reduce_scatter(output, input_list, op, group, async_op)
    slots = [slot.clone() for slot in input_list]  # torch's reduce may write to any rank's tensor
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
    """Reduces all inputs; chunk `r` of the result is rank `r`'s output."""
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
    """Slot `i` of the input goes to rank `i`, which finds it in the slot of this rank."""
    comm = comm_for(group, output_tensor_list[0])
    if comm is not None:
        return _own(comm.all_to_all(output_tensor_list, input_tensor_list, async_op), async_op)
    chosen = utils.get_group(group)
    if not _on_gloo(chosen, output_tensor_list[0]):
        return c10d.all_to_all(output_tensor_list, input_tensor_list, group, async_op)
    own = chosen.rank()
    output_tensor_list[own].copy_(input_tensor_list[own])
    others = [rank for rank in range(chosen.size()) if rank != own]
    works = [c10d.irecv(output_tensor_list[r], group=group, group_src=r) for r in others]
    works += [c10d.isend(input_tensor_list[r], group=group, group_dst=r) for r in others]
    return _torch(works, async_op)


def all_to_all_single(  # noqa: PLR0917 (the contract's order)
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:  # noqa: ANN401
    """Chunk `i` of the input goes to rank `i`; the sizes count rows, None: equal ones."""
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
    """Gives every rank its slot of the list of `src` (global rank), or of `group_src`."""
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
    """Puts every rank's tensor into the list of `dst` (global rank), or of `group_dst`."""
    root = group_rank(utils.get_group(group), dst, group_dst, "dst")
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.gather(tensor, gather_list, group=group, async_op=async_op, group_dst=root)
    return _own(comm.gather(gather_list or [], tensor, root, async_op), async_op)


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: list[int] | None = None
) -> Any:  # noqa: ANN401
    """Every rank has come here; with torchcomms on the group's first communicator."""
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
    """The reduction of backend ncclx that sends fewer bits. AssertionError without it."""
    comm = comm_for(group, output)
    if comm is None or comm.get_backend() != "ncclx":
        raise AssertionError("reduce_scatter_quantized needs torchcomms with backend ncclx")
    native: Any = comm.get_backend_impl()
    return _own(
        native.reduce_scatter_quantized(output, input, reduce_op(op), seed, async_op), async_op
    )
