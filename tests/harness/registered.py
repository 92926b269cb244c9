"""Tensors in windows, and hint `<backend>::registered`, which is for them."""

from __future__ import annotations

from typing import Any

import torch

LEAST_BYTES = 8 << 20  # of the largest tensor, or of a message
BESIDE = 64  # elements before and after a tensor


def hints_of(context: Any, value: str = "true") -> dict[str, str]:
    return {f"{context.backend}::registered": value}


class Memory:
    """A window, and a tensor in it at a place of this rank's own, or at one that all ranks have."""

    def __init__(self, context: Any, numel: int, is_one_place: bool = False) -> None:
        self.window = context.comm.window_allocate(4 * (numel + 2 * BESIDE))
        self.all = self.window.get_tensor().view(torch.float32)
        self.begin = BESIDE - 1 - (0 if is_one_place else 5 * context.rank)
        self.tensor = self.all[self.begin : self.begin + numel]
        self.all.fill_(-1)

    def check(self, wanted: torch.Tensor) -> None:
        assert torch.equal(self.tensor, wanted)
        assert (self.all[: self.begin] == -1).all()
        assert (self.all[self.begin + len(wanted) :] == -1).all()
