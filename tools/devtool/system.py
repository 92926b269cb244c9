"""System packages: finds what is missing on a Debian or Ubuntu machine, installs it as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .shell import Failure, run_quietly, say

MINIMUM_PYTHON = (3, 10)


def base_python() -> Path:
    """The interpreter virtual environments are made from: the system's, else the running one."""
    for candidate in ("/usr/bin/python3", sys.executable):
        if Path(candidate).exists() and version_of(candidate) >= MINIMUM_PYTHON:
            return Path(candidate)
    raise Failure("torchcomms needs Python 3.10 or newer; neither /usr/bin/python3 nor this one is")


def version_of(python: str) -> tuple[int, ...]:
    code = "import sys; print(sys.version_info.major, sys.version_info.minor)"
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout
    return tuple(int(word) for word in out.split())


def holds(python: Path, code: str) -> bool:
    """Whether `code` runs without an exception under `python`."""
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def missing_packages() -> tuple[list[str], list[str]]:
    """Packages that are needed, and packages that only help, as far as they are not there."""
    python = base_python()
    headers = (
        "import sysconfig, os; os.stat(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    )
    needed = []
    if not holds(python, "import venv, ensurepip"):
        needed.append("python3-venv")
    if not holds(python, headers):
        needed.append("python3-dev")
    if not (shutil.which("g++") or shutil.which("clang++")):
        needed.append("g++")
    if not any(Path(root, "include/gtest/gtest.h").exists() for root in ("/usr", "/usr/local")):
        needed.append("libgtest-dev")
    helpful = [name for name in ("ccache", "git") if not shutil.which(name)]
    return needed, helpful


def ensure_system_packages() -> None:
    needed, helpful = missing_packages()
    if not needed and not (helpful and os.geteuid() == 0):
        return
    packages = needed + helpful
    line = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"
    if not shutil.which("apt-get"):
        if not needed:
            return
        raise Failure(
            "missing on this system: "
            + " ".join(needed)
            + " (Debian names); install what corresponds"
        )
    if os.geteuid() != 0:
        raise Failure(
            f"missing system packages; run this one line, then again ./dev:\n  sudo sh -c '{line}'"
        )
    say("missing system packages: " + " ".join(packages))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_quietly("apt", ["sh", "-c", line], env=env)
    still, _ = missing_packages()
    if still:
        raise Failure(
            "apt installed its packages, but these are still not usable: " + " ".join(still)
        )
