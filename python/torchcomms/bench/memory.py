"""The memory in which a backend wants its tensors."""

from __future__ import annotations

import torch


class AnyMemory:
    """A backend that accepts tensors in any memory."""

    def room(self, numel: int, dtype: torch.dtype) -> torch.Tensor | None:
        return None

    def clear(self) -> None:
        pass
