"""The vendor libraries that backends would load: which file, and why that file."""

from __future__ import annotations

import os

import torchcomms
from torchcomms import _vendor
from torchcomms.doctor.report import Section

# For each backend, the name of its vendor library; `variable()` derives the variable from it.
VENDOR_OF = {
    "nccl": "nccl",
    "nccl-lazy": "nccl",
    "ncclx": "ncclx",
    "rccl": "rccl",
    "rcclx": "rcclx",
    "xccl": "xccl",
}


def variable(backend: str) -> str:
    return f"TORCHCOMM_{VENDOR_OF[backend].upper()}_LIBRARY"


def look() -> Section:
    """Loads the library of each vendor whose backend is in this build, if it is installed."""
    section = Section("vendors", "Vendors' libraries")
    for name in torchcomms.built_backends():
        if VENDOR_OF.get(name) != name:
            continue
        row: dict[str, object] = {"backend": name, "version": None, "why": None, "path": None}
        try:
            library = _vendor.Library(name)
            row |= {"version": library.version, "why": library.how, "path": library.path}
        except torchcomms.BackendUnavailable as error:
            row["why"] = "not found"
            if os.environ.get(variable(name)):
                section.problem(
                    variable(name), str(error), "set it to a library that loads, or unset it"
                )
        section.rows.append(row)
    return section


def why_not_on_host(backend: str) -> str | None:
    """Why the vendor library of a backend does not work on CPU tensors; None if it does."""
    try:
        library = _vendor.Library(VENDOR_OF[backend])
    except torchcomms.BackendUnavailable as error:
        return str(error)
    if library.on_host_memory:
        return None
    return (
        f"backend {backend} works on GPUs with {library.path}; for CPU tensors "
        f"{variable(backend)} must name a library for host memory"
    )
