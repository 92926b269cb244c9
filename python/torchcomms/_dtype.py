"""Names of dtypes: "float32" as in our texts, and "Float" as in PyTorch's flight recorder."""

from __future__ import annotations

from functools import cache

import torch

from torchcomms import _comms


def dtype_name(dtype: torch.dtype) -> str:
    """Converts torch.float32 to "float32"."""
    return str(dtype).removeprefix("torch.")


def of_recorder(text: str) -> str:
    """Converts "Float", as flight recorders write it, to "float32". Others stay as they are."""
    return _of_recorder().get(text, text)


def for_recorder(name: str) -> str:
    """Converts "float32" to "Float". Others stay as they are."""
    return _torch_names().get(name, name)


@cache
def _torch_names() -> dict[str, str]:
    return _comms._dtype_words()


@cache
def _of_recorder() -> dict[str, str]:
    return {text: name for name, text in _torch_names().items()}
