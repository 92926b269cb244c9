"""Messages between two ranks, and batches of messages."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed import distributed_c10d as c10d

from torchcomms._tagged import message
from torchcomms.distwrap import pginfo, utils
from torchcomms.distwrap._collectives import comm_for
from torchcomms.distwrap._ranks import group_rank

Tensor = torch.Tensor


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Any:  # noqa: ANN401
    """Starts to send `tensor` to one rank.

    Args:
        tensor: contiguous, any shape.
        dst: global rank of the receiver; exactly one of `dst` and `group_dst` must be given.
        group: the process group; None: the default group.
        tag: messages with one tag match in order.
        group_dst: the receiver as a rank of the group.
    Returns:
        The work.
    Raises:
        InvalidArgument (a ValueError): none or both of `dst` and `group_dst`, or a rank that is not
            in the group.
        CommError: as the operation of the communicator. Without torchcomms, torch's own errors.
    """
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.isend(tensor, dst, group, tag, group_dst)
    peer = group_rank(utils.get_group(group), dst, group_dst, "dst")
    return message("send", comm, tensor, peer, tag, True)


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Any:  # noqa: ANN401
    """Starts to receive into `tensor` from one rank.

    Args:
        tensor: contiguous, as many elements as are sent.
        src: global rank of the sender; exactly one of `src` and `group_src` must be given.
        group, tag: see isend.
        group_src: the sender as a rank of the group.
    Returns:
        The work.
    Raises:
        InvalidArgument, CommError: see isend.
    """
    comm = comm_for(group, tensor)
    if comm is None:
        return c10d.irecv(tensor, src, group, tag, group_src)
    peer = group_rank(utils.get_group(group), src, group_src, "src")
    return message("recv", comm, tensor, peer, tag, True)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Sends `tensor` to one rank.

    Blocks as isend() and wait(); arguments and errors are those of isend.
    """
    comm = comm_for(group, tensor)
    if comm is None:
        c10d.send(tensor, dst, group, tag, group_dst)
        return
    peer = group_rank(utils.get_group(group), dst, group_dst, "dst")
    message("send", comm, tensor, peer, tag, False)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receives into `tensor` from one rank. Blocks as irecv() and wait().

    Without torchcomms, `src` and `group_src` may both be omitted to receive from any rank. With
    torchcomms this raises InvalidArgument. Other arguments and errors are those of irecv.

    Returns:
        The global rank of the sender.
    """
    comm = comm_for(group, tensor)
    if comm is None:
        return int(c10d.recv(tensor, src, group, tag, group_src))
    chosen = utils.get_group(group)
    peer = group_rank(chosen, src, group_src, "src")
    message("recv", comm, tensor, peer, tag, False)
    return pginfo.pg_info_get_global_ranks(chosen)[peer]


# The values that `op` of a message may have. A _Refusal in torch.distributed compares equal to
# them.
_NATIVE = {
    isend: c10d.isend,
    irecv: c10d.irecv,
    c10d.isend: c10d.isend,
    c10d.irecv: c10d.irecv,
}


class P2POp:
    """One message of batch_isend_irecv; `op` is isend or irecv, of this package or of torch."""

    def __init__(  # noqa: PLR0917 (the contract's order)
        self,
        op: Any,  # noqa: ANN401
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        self._p2p_op = c10d.P2POp(_NATIVE.get(op, op), tensor, peer, group, tag, group_peer)

    @property
    def op(self) -> Any:  # noqa: ANN401
        return self._p2p_op.op

    @property
    def tensor(self) -> Tensor:
        return self._p2p_op.tensor

    @property
    def group(self) -> ProcessGroup:
        return self._p2p_op.group

    @property
    def peer(self) -> int:
        return self._p2p_op.peer

    @property
    def tag(self) -> int:
        return self._p2p_op.tag

    @property
    def group_peer(self) -> int:
        return self._p2p_op.group_peer


def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
    """Starts all messages.

    Returns:
        One work per message. Without torchcomms, the works that torch returns.
    """
    ops = [op._p2p_op if isinstance(op, P2POp) else op for op in p2p_op_list]
    if not ops:
        return []
    if not utils.torchcomms_is_enabled():
        return list(c10d.batch_isend_irecv(ops))
    works = []
    for op in ops:
        if op.op == c10d.isend:
            works.append(isend(op.tensor, group=op.group, tag=op.tag, group_dst=op.group_peer))
        else:
            works.append(irecv(op.tensor, group=op.group, tag=op.tag, group_src=op.group_peer))
    return works
