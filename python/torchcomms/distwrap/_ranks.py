"""Converts peers that are named in two ways, and torch's reduce operations."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup

import torchcomms
from torchcomms.distwrap import utils

_OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")


def group_rank(
    group: ProcessGroup, global_rank: int | None, in_group: int | None, name: str
) -> int:
    """The group rank of a peer, of which exactly one rank is given.

    Raises InvalidArgument (a ValueError) otherwise.
    """
    if (global_rank is None) == (in_group is None):
        raise torchcomms.InvalidArgument(f"exactly one of {name} and group_{name} must be given")
    if in_group is not None:
        return in_group
    assert global_rank is not None
    return utils.get_group_rank(group, global_rank)


def _make_nccl_premul_sum(mul_factor: Any) -> Any:  # noqa: ANN401
    """torch's reduce op that multiplies by `mul_factor`, a float or a tensor, before the sum."""
    return dist._make_nccl_premul_sum(mul_factor)


def reduce_op(op: Any) -> torchcomms.ReduceOp:  # noqa: ANN401
    """Converts a reduce op of torch.

    Raises InvalidArgument (a ValueError) for an unsupported one.
    """
    if isinstance(op, torchcomms.ReduceOp):
        return op
    # Checked, because these types compare equal to numbers.
    is_torchs = isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType))
    for name in _OPS if is_torchs else ():
        if op == getattr(dist.ReduceOp, name):
            ours: torchcomms.ReduceOp = getattr(torchcomms.ReduceOp, name)
            return ours
    scaled: object = dist.ReduceOp.PREMUL_SUM
    if isinstance(op, dist.ReduceOp) and op == scaled:
        state = op.__getstate__()  # torch shows the factor only here
        if isinstance(state, tuple) and state[1] is not None:
            return torchcomms.ReduceOp.PREMUL_SUM(state[1])
    allowed = ", ".join(_OPS)
    raise torchcomms.InvalidArgument(
        f"unsupported reduce op {op!r}; allowed are {allowed} and _make_nccl_premul_sum(factor)"
    )
