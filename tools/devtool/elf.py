"""What the built libraries ask the dynamic linker for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .shell import Failure, say

# A machine without GPU, driver or NIC lacks these, and the package must load there.
FORBIDDEN = re.compile(r"lib(cuda|cudart|nccl|rccl|ibverbs|torch_cuda|c10_cuda|amdhip64|ccl)\b")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def needed(library: Path) -> list[str]:
    out = subprocess.run(
        ["readelf", "-d", library], capture_output=True, text=True, check=True
    ).stdout
    return NEEDED.findall(out)


def check_needed(package: Path) -> None:
    libraries = sorted(package.glob("*.so"))
    if not any(library.name == "libtorchcomms.so" for library in libraries):
        raise Failure(f"no libtorchcomms.so in {package}")
    for library in libraries:
        names = needed(library)
        bad = [name for name in names if FORBIDDEN.match(name)]
        if bad:
            raise Failure(
                f"{library.name} needs {', '.join(bad)}: it would not load without a GPU's software"
            )
        say(f"{library.name} needs {' '.join(names)}")
