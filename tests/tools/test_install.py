"""`pip install .`, isolated, builds against the torch that is there and not the newest."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = """
import torch, torchcomms
from importlib.metadata import requires
from torchcomms import _build_info
print(torch.__version__.partition("+")[0], _build_info.TORCH_VERSION)
print(*(line for line in requires("torchcomms") if line.startswith("torch")))
print(*sorted(torchcomms.built_backends()))
comm = torchcomms.new_comm("fake", torch.device("cpu"), "installed")
comm.barrier(False)
comm.finalize()
"""


def torch_environments() -> dict[str, Path]:
    """site-packages with a torch: this one's, and the other workspaces' of ./dev that are there."""
    found = {"this": Path(sysconfig.get_path("purelib"))}
    for site in ROOT.glob(".venv*/lib/python*/site-packages"):
        here = f"python{sys.version_info.major}.{sys.version_info.minor}"
        if site != found["this"] and site.parent.name == here and (site / "torch").is_dir():
            found[site.parents[2].name] = site
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", torch_environments())
def test_an_isolated_install_serves_exactly_the_torch_that_is_there(
    name: str, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(f"{torch_environments()[name]}\n")
    env = {
        key: value
        for key, value in os.environ.items()
        if key not in ("VIRTUAL_ENV", "PYTHONPATH") and not key.startswith("USE_")
    }

    subprocess.run([python, "-m", "pip", "install", "-q", ROOT], env=env, cwd=tmp_path, check=True)
    done = subprocess.run(
        [python, "-c", REPORT], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    versions, requirement, backends = done.stdout.splitlines()
    present, built_against = versions.split()
    assert built_against == present
    assert requirement == f"torch=={'.'.join(present.split('.')[:2])}.*"
    assert backends == "ctran fake gloo nccl nccl-lazy ncclx"
