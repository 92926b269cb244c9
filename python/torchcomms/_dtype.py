"""The one spelling of dtypes in texts, "float32", and the words of PyTorch's flight recorder."""

from __future__ import annotations

from functools import cache

import torch

from torchcomms import _comms


def dtype_name(dtype: torch.dtype) -> str:
    """torch.float32 -> "float32"."""
    return str(dtype).removeprefix("torch.")


def of_recorder(word: str) -> str:
    """ "Float", as flight recorders write it, -> "float32"; another word stays what it is."""
    return _of_recorder().get(word, word)


def for_recorder(name: str) -> str:
    """ "float32" -> "Float"."""
    return _words().get(name, name)


@cache
def _words() -> dict[str, str]:
    return _comms._dtype_words()


@cache
def _of_recorder() -> dict[str, str]:
    return {word: name for name, word in _words().items()}
