"""The virtual environment of a workspace: torch at the asked version, and the pinned tools."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Sequence

from .paths import ROOT, Workspace
from .shell import Failure, run_quietly, say
from .system import base_python

# Run inside the environment: exits 0 when every line of the requirement files given holds.
SATISFIED = """
import sys
from importlib.metadata import PackageNotFoundError, version
from packaging.requirements import Requirement
for path in sys.argv[2:]:
    for line in open(path):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate():
            continue
        try:
            if not wanted.specifier.contains(version(wanted.name), prereleases=True):
                sys.exit(1)
        except PackageNotFoundError:
            sys.exit(1)
sys.exit(0 if version("torch").partition("+")[0] == sys.argv[1] else 1)
"""


BUILD_AND_TEST = ROOT / "tools" / "requirements-dev.txt"
CHECK = ROOT / "tools" / "requirements-check.txt"


def fingerprint(workspace: Workspace, files: Sequence[Path]) -> str:
    digest = hashlib.sha256(workspace.torch.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def satisfied(workspace: Workspace, files: Sequence[Path]) -> bool:
    argv = [workspace.python, "-c", SATISFIED, workspace.torch, *files]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


# What the first installation of torch takes, in GB: the environment, and its wheels meanwhile.
INSTALLED_GB = 6
DOWNLOADED_GB = 4


def require_room(into: Path) -> None:
    """Refuses the first installation where its file systems cannot hold it, before the download."""
    needed: dict[int, tuple[Path, int]] = {}
    for folder, gigabytes in ((into, INSTALLED_GB), (Path(tempfile.gettempdir()), DOWNLOADED_GB)):
        device = os.stat(folder).st_dev
        first, so_far = needed.get(device, (folder, 0))
        needed[device] = (first, so_far + gigabytes)
    for folder, gigabytes in needed.values():
        free = shutil.disk_usage(folder).free / 1e9
        if free < gigabytes:
            raise Failure(
                f"the first installation of torch needs about {gigabytes} GB of disk at {folder}: "
                f"{free:.1f} GB are free; free some, or set TMPDIR to a folder of another disk"
            )


def ensure_venv(workspace: Workspace, files: Sequence[Path] = (BUILD_AND_TEST,)) -> None:
    """Makes the environment hold torch and every line of the requirement files."""
    names = "-".join(file.stem for file in files)
    stamp = workspace.venv / f"torchcomms-{names}.stamp"
    wanted = fingerprint(workspace, files)
    if workspace.python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if not workspace.python.exists():
        require_room(workspace.venv.parent)  # first: what is there already is not looked at again
        run_quietly(f"venv {workspace.venv.name}", [base_python(), "-m", "venv", workspace.venv])
        say(f"the first installation of torch {workspace.torch} downloads about 3 GB")
    if not satisfied(workspace, files):
        pip = [workspace.python, "-m", "pip", "install", "--progress-bar", "off"]
        pip += [
            "--no-compile"
        ]  # byte-compiling all of torch takes a minute; imports do what they need
        lines = [word for file in files for word in ("-r", file)]
        run_quietly(f"pip {workspace.venv.name}", [*pip, f"torch=={workspace.torch}", *lines])
    stamp.write_text(wanted)
