"""Collectives that return new tensors: differentiable, and traceable by torch.compile.

The functions work eagerly with every torch version. torch.compile needs a newer version to trace
them, see `is_torch_compile_supported`.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.torch_version import TorchVersion

from torchcomms import _environment

MIN_PYTORCH_VERSION_FOR_COMPILE = "2.12.0.dev0"

_COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")

__all__ = [
    "MIN_PYTORCH_VERSION_FOR_COMPILE",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "is_torch_compile_supported",
    "is_torch_compile_supported_and_enabled",
    "reduce_scatter",
]


def is_torch_compile_supported(
    min_version: str = MIN_PYTORCH_VERSION_FOR_COMPILE, _current_version: str | None = None
) -> bool:
    """Returns whether this torch is new enough for torch.compile to trace the collectives.

    TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT=1 accepts any version.

    Args:
        min_version: the oldest accepted version of torch.
    """
    if _environment.flag("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT"):
        return True
    current = torch.__version__ if _current_version is None else _current_version
    return bool(TorchVersion(str(current)) >= min_version)


def is_torch_compile_supported_and_enabled(
    min_version: str = MIN_PYTORCH_VERSION_FOR_COMPILE, _current_version: str | None = None
) -> bool:
    """Returns whether `is_torch_compile_supported()`, and TORCHCOMMS_PATCH_FOR_COMPILE=1 is set."""
    enabled = _environment.flag("TORCHCOMMS_PATCH_FOR_COMPILE")
    return enabled and is_torch_compile_supported(min_version, _current_version)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Imports the collectives at first use: they need parts of torch that take long to import."""
    if name not in _COLLECTIVES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collectives = importlib.import_module(f"{__name__}.collectives")
    globals().update({known: getattr(collectives, known) for known in _COLLECTIVES})
    return globals()[name]


def _install_when_asked() -> bool:
    """Makes the methods of communicators traceable, if the environment asks for it.

    Returns: False if the environment asks for it and torch is not fully imported yet.
    """
    if not is_torch_compile_supported_and_enabled():
        return True
    if not all(hasattr(torch, name) for name in ("library", "compiler", "func")):
        return False
    from torchcomms.functional.methods import install

    install()
    return True
