"""Messages with tags, which the public methods of a communicator do not have."""

from __future__ import annotations

import torch

from torchcomms._comms import TorchComm, TorchWork


def message(  # noqa: PLR0917
    op: str, comm: TorchComm, tensor: torch.Tensor, peer: int, tag: int, async_op: bool
) -> TorchWork:
    """Sends or receives a message with a tag. Returns: the work.

    Messages match by tag if the backend has tags. Otherwise they match in order, as torch's do.
    """
    if tag == 0:
        work: TorchWork = getattr(comm, op)(tensor, peer, async_op)
    else:
        work = getattr(comm, f"_{op}_tagged")(tensor, peer, tag, async_op)
    return work
