"""Intel's oneCCL from PyPI, in an environment of its own: nothing of it comes near torch's."""

from __future__ import annotations

import os
from pathlib import Path

from .paths import ROOT, Workspace
from .shell import exclusive, run_quietly, say
from .system import base_python

REQUIREMENTS = ROOT / "tools" / "requirements-oneccl.txt"
FOLDER = ROOT / "build" / "oneccl"
FILE = "libccl.so.2"


def ensure() -> Path:
    """Installs it where it is not; the folder of its libraries."""
    libraries = FOLDER / "lib"
    stamp = FOLDER / "torchcomms.stamp"
    wanted = REQUIREMENTS.read_text()
    with exclusive(FOLDER.name):
        if not ((libraries / FILE).exists() and stamp.exists() and stamp.read_text() == wanted):
            say(f"oneCCL is downloaded from PyPI (455 MB) into {FOLDER} (2 GB, may be removed)")
            run_quietly("venv oneccl", [base_python(), "-m", "venv", "--clear", FOLDER])
            pip = [FOLDER / "bin" / "python", "-m", "pip", "install", "--progress-bar", "off"]
            run_quietly("pip oneccl", [*pip, "--no-compile", "-r", REQUIREMENTS])
            stamp.write_text(wanted)
    return libraries


def environment(workspace: Workspace) -> dict[str, str]:
    """Of tests that run over it. The loader looks for what its plug-in needs in one folder alone,
    which no library of it says, so it is named to all of the process.
    """
    libraries = str(ensure())
    env = workspace.environment()
    before = env.get("LD_LIBRARY_PATH")
    env["LD_LIBRARY_PATH"] = os.pathsep.join([libraries, *([before] if before else [])])
    return {**env, "TC_TEST_ONECCL": libraries}
