"""Loads the native core, or says in one sentence why it cannot be loaded."""

import importlib
import sys
import warnings

from torchcomms import _environment, _graph_metaclass


def _torch_minor(version: str) -> str:
    """Converts "2.15.0+cu132" to "2.15"."""
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:2])


def _check_torch() -> None:
    import torch

    from torchcomms._build_info import TORCH_MINOR

    found = _torch_minor(torch.__version__)
    if found != TORCH_MINOR:
        raise ImportError(
            f"torchcomms was built for torch {TORCH_MINOR} but torch {torch.__version__} is"
            " installed: reinstall torchcomms in this environment (pip install --force-reinstall"
            f" --no-deps torchcomms) or install torch {TORCH_MINOR}"
        )


def _warn_once(error: Exception) -> None:
    """Warns, once a process, if the user asked torch to use torchcomms.

    The mark is in `sys`, because it must outlive this module: a failed import is tried again.
    """
    asked = _environment.flag("TORCH_DISTRIBUTED_USE_TORCHCOMMS")
    if not asked or hasattr(sys, "_torchcomms_warned"):
        return
    sys._torchcomms_warned = True  # type: ignore[attr-defined]
    warnings.warn(
        "TORCH_DISTRIBUTED_USE_TORCHCOMMS is set, but torchcomms cannot be loaded and"
        f" torch.distributed uses its own backends: {error}",
        RuntimeWarning,
        stacklevel=3,
    )


def load() -> None:
    """Imports ``torchcomms._comms``.

    torch.distributed imports this package and treats an ImportError as "not installed". If the user
    asked torch to use torchcomms, torch would be silent, so this function warns once.

    Raises: ImportError, whatever is wrong.
    """
    try:
        _check_torch()
        _graph_metaclass.place()
        importlib.import_module("torchcomms._comms")
    except Exception as error:
        _warn_once(error)
        if isinstance(error, ImportError):
            raise
        raise ImportError(f"torchcomms cannot be loaded: {error}") from error
