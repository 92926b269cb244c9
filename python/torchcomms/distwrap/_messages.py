"""Messages between two ranks, and several of them at once."""

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
    """Starts to send to `dst` (global rank), or `group_dst`. Returns the work."""
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
    """Starts to receive from `src` (global rank), or `group_src`. Returns the work."""
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
    """Sends to `dst` (global rank), or `group_dst`."""
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
    """Receives from `src` (global rank), or `group_src`. Returns the global rank of the sender.

    Without torchcomms neither may be given: any sender. With torchcomms InvalidArgument.
    """
    comm = comm_for(group, tensor)
    if comm is None:
        return int(c10d.recv(tensor, src, group, tag, group_src))
    chosen = utils.get_group(group)
    peer = group_rank(chosen, src, group_src, "src")
    message("recv", comm, tensor, peer, tag, False)
    return pginfo.pg_info_get_global_ranks(chosen)[peer]


# What `op` of a message may be. What stands in for torch.distributed's own is equal to it.
_NATIVE = {
    isend: c10d.isend,
    irecv: c10d.irecv,
    c10d.isend: c10d.isend,
    c10d.irecv: c10d.irecv,
}


class P2POp:
    """One message of batch_isend_irecv; `op` is isend or irecv, of this package or torch's."""

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
    """Starts all messages. Returns one work for each; for torch's own backends what torch gives."""
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
