"""Finds which backends work on this machine, and says why the others do not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import torchcomms
from torchcomms import _vendor
from torchcomms.doctor.report import Section
from torchcomms.doctor.vendors import VENDOR_OF, variable


def _cuda() -> str | None:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not Path("/dev/nvidiactl").exists():
        return "this machine has no NVIDIA driver (/dev/nvidiactl is missing)"
    if torch.cuda.device_count() == 0:
        return "the NVIDIA driver shows no GPU (see CUDA_VISIBLE_DEVICES, nvidia-smi)"
    return None


def _rocm() -> str | None:
    if torch.version.hip is None:
        return f"torch {torch.__version__} is built without ROCm"
    if torch.cuda.device_count() == 0:
        return "the AMD driver shows no GPU (see HIP_VISIBLE_DEVICES, rocm-smi)"
    return None


def _xpu() -> str | None:
    return None if torch.xpu.is_available() else "torch sees no Intel GPU"


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Backend:
    """A row of the table of backends: the device of its tensors, and a check of what it needs."""

    name: str
    device: str
    missing: Callable[[], str | None]


KNOWN = (
    Backend("gloo", "cpu", _nothing),
    Backend("fake", "cpu", _nothing),
    Backend("ctran", "cpu", _nothing),
    Backend("nccl", "cuda", _cuda),
    Backend("nccl-lazy", "cuda", _cuda),
    Backend("ncclx", "cuda", _cuda),
    Backend("rccl", "cuda", _rocm),
    Backend("rcclx", "cuda", _rocm),
    Backend("xccl", "xpu", _xpu),
)


def _here(backend: Backend) -> Backend:
    """The row of `backend`, for the CPU if the user named a vendor library for host memory."""
    if backend.name not in VENDOR_OF or not os.environ.get(variable(backend.name)):
        return backend
    try:
        library = _vendor.Library(VENDOR_OF[backend.name])
    except torchcomms.BackendUnavailable:
        return backend
    return replace(backend, device="cpu", missing=_nothing) if library.on_host_memory else backend


def look() -> tuple[Section, list[Backend]]:
    """The table of all known and all installed backends, and the usable ones among them."""
    section = Section("backends", "Backends")
    usable = []
    built = torchcomms.built_backends()
    known = [row.name for row in KNOWN]
    installed = [Backend(name, "cpu", _nothing) for name in built if name not in known]
    for backend in (*map(_here, KNOWN), *installed):
        reason = _unusable(section, backend, backend.name in built)
        if reason is None:
            usable.append(backend)
        section.rows.append(
            {
                "backend": backend.name,
                "device": backend.device,
                "built": "yes" if backend.name in built else "no",
                "usable": "yes" if reason is None else "no",
                "why not": reason,
            }
        )
    if not any(backend.name != "fake" for backend in usable):
        section.problem(
            "backends",
            "no backend that moves data works here",
            "build torchcomms with USE_GLOO=1, or install a backend package",
        )
    return section, usable


def _unusable(section: Section, backend: Backend, built: bool) -> str | None:
    """Returns: why the backend cannot be used here, or None.

    A backend that is installed but does not load is noted as a problem.
    """
    lacking = backend.missing()
    if not built and not _library(backend.name):
        return "not in this build of torchcomms" + (f"; {lacking}" if lacking else "")
    if lacking:
        return lacking
    if built:
        try:
            torchcomms._load_backend(backend.name)
        except Exception as error:  # a third-party module may raise any exception
            reason = f"{type(error).__name__}: {error}"
            section.problem(
                backend.name,
                f"the backend is installed, but does not load: {reason}",
                "reinstall torchcomms for this torch: pip install --force-reinstall .",
            )
            return reason
    return None


def _library(name: str) -> str | None:
    return os.environ.get(f"TORCHCOMMS_BACKEND_LIB_PATH_{name.upper()}")
