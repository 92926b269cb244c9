"""Tensors inside a larger storage, so that a write past their ends is seen."""

from __future__ import annotations

import math

import torch

from .values import assert_same_bits, bits

_MARGIN = 5  # elements before and after: odd, so that the view is not aligned
_FILL = 0xA5


class Guarded:
    """A contiguous view with `_MARGIN` untouchable elements on both sides."""

    def __init__(
        self, shape: int | tuple[int, ...], dtype: torch.dtype, like: torch.Tensor | None = None
    ) -> None:
        shape = (shape,) if isinstance(shape, int) else shape
        numel = math.prod(shape)
        self._storage = torch.empty(numel + 2 * _MARGIN, dtype=dtype)
        self._storage.view(torch.uint8).fill_(_FILL)
        self.tensor = self._storage[_MARGIN : _MARGIN + numel].view(shape)
        if dtype is torch.bool:
            self.tensor.fill_(True)  # a bool of another byte may change in a mere copy
        if like is not None:
            self.tensor.copy_(like.reshape(shape))

    def check(self) -> None:
        """Raises AssertionError when something beside the view changed."""
        for side in (self._storage[:_MARGIN], self._storage[-_MARGIN:]):
            assert bool((bits(side) == _FILL).all()), "elements outside of the tensor were written"

    def check_unchanged(self, original: torch.Tensor) -> None:
        """Raises AssertionError when the view itself, or something beside it, changed."""
        assert_same_bits(self.tensor, original)
        self.check()
