"""Finds the torch a build is for: that of the environment the package is to be installed into.

pip builds in an isolated environment, which would fetch the newest torch; but a build serves only
the torch minor it was made for. The isolation hides the environment behind PYTHONPATH, so the same
interpreter started without it sees the torch the user has, and its headers and libraries are used
where they lie. Nothing is imported from that torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROBE = Path(__file__).resolve().parents[2] / "cmake" / "probe_torch.py"


@dataclass(frozen=True)
class Torch:
    dir: str
    public: str  # "2.11.0"
    minor: str  # "2.11"
    hip: str  # ROCm version; empty for any other torch
    python: str  # "3.12": of the interpreter it belongs to
    missing: tuple[str, ...]  # files a build needs and this torch lacks


def probe(command: list[str]) -> Torch | None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    found = json.loads(done.stdout)
    fields = {name: found[name] for name in ("dir", "public", "minor", "hip", "python")}
    return Torch(**fields, missing=tuple(found["missing"]))


def candidates() -> list[list[str]]:
    """Commands that may find it, best first."""
    commands = []
    if folder := os.environ.get("TORCHCOMMS_TORCH_DIR"):
        return [[sys.executable, str(PROBE), "--dir", folder]]
    # As we are: right without isolation, and when torch is in the isolated environment itself.
    commands.append([sys.executable, str(PROBE)])
    # pip: the same interpreter, PYTHONPATH ignored.
    commands.append([sys.executable, "-E", str(PROBE)])
    # Front ends that isolate with a virtual environment of their own.
    if environment := os.environ.get("VIRTUAL_ENV"):
        commands.append([str(Path(environment, "bin", "python")), "-E", str(PROBE)])
    return commands


@cache
def find() -> Torch | None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for command in candidates():
        if not Path(command[0]).exists():
            continue
        found = probe(command)
        if found is None:
            continue
        if found.python != here:
            raise SystemExit(
                f"torchcomms: {found.dir} belongs to Python {found.python}, but the build runs "
                f"under Python {here}. Build with the Python of the environment that has torch."
            )
        return found
    return None


def requirements() -> list[str]:
    """What the isolated environment needs: nothing when a torch can be used where it lies."""
    found = find()
    if found is None:
        return ["torch>=2.11"]
    if found.missing:
        return [f"torch=={found.public}"]
    return []
