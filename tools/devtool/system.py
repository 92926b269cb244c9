"""System packages: finds what is missing on a Debian or Ubuntu machine, installs it as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Sequence

from .shell import Failure, run_quietly, say

MINIMUM_PYTHON = (3, 10)
MINIMUM_CLANG = 15
# What Debian and Ubuntu call a clang that is new enough, and libFuzzer for it.
CLANG_PACKAGES = tuple((f"clang-{n}", f"libclang-rt-{n}-dev") for n in (19, 18, 17, 16))


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


def find_clang() -> Path | None:
    """A clang++ that is new enough and brings libFuzzer."""
    names = ["clang++", *(f"clang++-{n}" for n in range(30, MINIMUM_CLANG - 1, -1))]
    for name in names:
        found = shutil.which(name)
        if found and is_usable_clang(found):
            return Path(found)
    return None


def is_usable_clang(program: str) -> bool:
    version = subprocess.run([program, "-dumpversion"], capture_output=True, text=True, check=False)
    number = version.stdout.partition(".")[0].strip()
    if version.returncode != 0 or not number.isdigit() or int(number) < MINIMUM_CLANG:
        return False
    code = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long){return 0;}'
    argv = [program, "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", os.devnull]
    done = subprocess.run(argv, input=code, text=True, capture_output=True, check=False)
    return done.returncode == 0


def ensure_clang() -> Path:
    """For the fuzz targets: libFuzzer is a part of clang."""
    if found := find_clang():
        return found
    for packages in CLANG_PACKAGES:
        if apt_knows(packages):
            install(list(packages))
            if found := find_clang():
                return found
    raise Failure(f"the fuzz targets need clang {MINIMUM_CLANG} or newer, with libFuzzer")


def ensure_doxygen() -> None:
    """For the pages of the C++ headers: Doxygen reads the headers."""
    if not shutil.which("doxygen"):
        install(["doxygen"])
        if not shutil.which("doxygen"):
            raise Failure("apt installed doxygen, but there is no program doxygen on PATH")


def apt_knows(packages: Sequence[str]) -> bool:
    if not shutil.which("apt-cache"):
        return False
    show = subprocess.run(["apt-cache", "show", *packages], capture_output=True, check=False)
    return show.returncode == 0


def ensure_system_packages() -> None:
    needed, helpful = missing_packages()
    if not needed and not (helpful and os.geteuid() == 0):
        return
    install(needed + helpful, optional=not needed)
    still, _ = missing_packages()
    if still:
        raise Failure(
            "apt installed its packages, but these are still not usable: " + " ".join(still)
        )


def install(packages: list[str], *, optional: bool = False) -> None:
    """With apt, as root; `optional`: nothing happens where there is no apt."""
    line = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"
    if not shutil.which("apt-get"):
        if optional:
            return
        raise Failure(
            "missing on this system: "
            + " ".join(packages)
            + " (Debian names); install what corresponds"
        )
    if os.geteuid() != 0:
        raise Failure(
            f"missing system packages; run this one line, then again ./dev:\n  sudo sh -c '{line}'"
        )
    say("missing system packages: " + " ".join(packages))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_quietly("apt", ["sh", "-c", line], env=env)
