"""The versions of Python, torch and torchcomms, and the compiler that built torchcomms."""

from __future__ import annotations

import mmap
import platform
import re
import sys
from pathlib import Path

import torch

import torchcomms
from torchcomms import _build_info
from torchcomms.doctor.report import Section, facts

_COMPILER = re.compile(rb"(?:GCC: \([^)\0]*\) [\d.]+|(?:Debian |Ubuntu )?clang version [\d.]+)")


def look() -> Section:
    """Never raises: a wrong minor version of torch has already failed the import of torchcomms."""
    package = Path(torchcomms.__path__[0])
    section = Section("versions", "Versions")
    section.rows = facts(
        [
            ("python", f"{platform.python_version()} ({sys.executable})"),
            ("torch", f"{torch.__version__} ({Path(torch.__path__[0])})"),
            ("torch's CUDA", torch.version.cuda),
            ("torch's ROCm", torch.version.hip),
            ("torchcomms", f"{torchcomms.__version__} ({package})"),
            ("built for torch", _build_info.TORCH_VERSION),
            ("built with", _compiler(package / "libtorchcomms.so")),
            ("build type", _build_info.BUILD_TYPE or None),
            ("commit", _build_info.COMMIT or None),
            ("libc", " ".join(platform.libc_ver())),
            ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ]
    )
    release = torch.__version__.partition("+")[0]
    is_same = release == _build_info.TORCH_VERSION.partition("+")[0]
    same = "the same version" if is_same else "the same minor version"
    section.ok(
        "versions",
        f"torchcomms was built for torch {_build_info.TORCH_VERSION}; {same} is installed",
    )
    return section


def _compiler(library: Path) -> str | None:
    """The compiler's note inside the library; None if it was stripped."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            found = {match[0].decode() for match in _COMPILER.finditer(data)}
    except (OSError, ValueError):
        return None
    return ", ".join(sorted(found)) or None
