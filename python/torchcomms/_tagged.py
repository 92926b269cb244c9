"""Messages with tags, which the methods of a communicator do not have."""

from __future__ import annotations

from typing import Any

import torch

from torchcomms._comms import TorchComm, _BackendWrapper


def message(  # noqa: PLR0917
    op: str, comm: TorchComm, tensor: torch.Tensor, peer: int, tag: int, async_op: bool
) -> Any:  # noqa: ANN401
    """The work. Messages match by tag where the backend has tags, else by order, as torch's do."""
    if tag == 0:
        return getattr(comm, op)(tensor, peer, async_op)
    work = getattr(_BackendWrapper(comm), op)([tensor], peer, tag)
    if not async_op:
        work.wait()
    return work
