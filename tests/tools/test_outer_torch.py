"""The build backend finds the torch of the environment that runs pip, also when isolated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKEND = ROOT / "tools" / "build_backend"
ASK = """
import dataclasses, json, outer_torch
found = outer_torch.find()
print(json.dumps([found and dataclasses.asdict(found), outer_torch.requirements()]))
"""
sys.path.append(str(ROOT / "cmake"))

import probe_torch  # noqa: E402 (the path comes first)


def make_torch(folder: Path, version: str, *, headers: bool = True) -> Path:
    """Lays out what an installed torch looks like to the probe."""
    torch = folder / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('a build must not import torch')")
    (torch / "version.py").write_text(f"__version__ = {version!r}\ncuda = None\nhip = None\n")
    for name in probe_torch.NEEDED if headers else ():
        (torch / name).parent.mkdir(parents=True, exist_ok=True)
        (torch / name).write_bytes(b"")
    return torch


class Environment:
    """A virtual environment, and a Python run in it the way a build front end does."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        self.folder = folder
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "lib" / version / "site-packages"

    def ask(self, isolated: Path | None = None, **environment: str) -> tuple[Any, list[str]]:
        """`isolated`: site-packages of an isolated build environment, as pip puts it on PYTHONPATH
        with a sitecustomize that removes the environment's own."""
        paths = [str(BACKEND)]
        if isolated is not None:
            isolated.mkdir(parents=True, exist_ok=True)
            code = f"import sys\nsys.path[:] = [p for p in sys.path if p != {str(self.site)!r}]\n"
            (isolated / "sitecustomize.py").write_text(code)
            paths.append(str(isolated))
        env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
        env |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONNOUSERSITE": "1", **environment}
        done = subprocess.run(
            [self.python, "-c", ASK], env=env, capture_output=True, text=True, check=True
        )
        found, requirements = json.loads(done.stdout)
        return found, requirements


@pytest.fixture
def outer(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "outer")


def test_the_environments_torch_is_used_under_isolation(outer: Environment, tmp_path: Path) -> None:
    torch = make_torch(outer.site, "2.11.0+cu130")
    found, requirements = outer.ask(isolated=tmp_path / "isolated")
    assert (found["dir"], found["public"], found["minor"]) == (str(torch), "2.11.0", "2.11")
    assert requirements == []


def test_the_environments_torch_is_used_without_isolation(outer: Environment) -> None:
    torch = make_torch(outer.site, "2.12.1")
    found, requirements = outer.ask()
    assert (found["dir"], requirements) == (str(torch), [])


def test_no_torch_anywhere_asks_for_one(outer: Environment, tmp_path: Path) -> None:
    assert outer.ask(isolated=tmp_path / "isolated") == (None, ["torch>=2.11"])


def test_a_torch_in_the_isolated_environment_is_used(outer: Environment, tmp_path: Path) -> None:
    torch = make_torch(tmp_path / "isolated", "2.15.0")
    found, requirements = outer.ask(isolated=tmp_path / "isolated")
    assert (found["dir"], requirements) == (str(torch), [])


def test_a_torch_without_headers_is_required_at_exactly_its_version(
    outer: Environment, tmp_path: Path
) -> None:
    make_torch(outer.site, "2.11.0+cpu", headers=False)
    _, requirements = outer.ask(isolated=tmp_path / "isolated")
    assert requirements == ["torch==2.11.0"]


def test_a_front_end_with_its_own_environment_finds_the_active_one(
    outer: Environment, tmp_path: Path
) -> None:
    torch = make_torch(outer.site, "2.13.0")
    front_end = Environment(tmp_path / "front_end")
    found, requirements = front_end.ask(VIRTUAL_ENV=str(outer.folder))
    assert (found["dir"], requirements) == (str(torch), [])


def test_an_explicit_folder_wins(outer: Environment, tmp_path: Path) -> None:
    make_torch(outer.site, "2.11.0")
    torch = make_torch(tmp_path / "elsewhere", "2.14.0")
    found, _ = outer.ask(TORCHCOMMS_TORCH_DIR=str(torch))
    assert found["public"] == "2.14.0"


def test_the_probe_agrees_with_this_environments_torch() -> None:
    import torch

    described = probe_torch.describe(Path(torch.__file__).parent)
    assert described["version"] == str(torch.__version__)
    assert described["cuda"] == (torch.version.cuda or "")
    assert described["hip"] == (torch.version.hip or "")
    assert described["cxx11_abi"] == int(torch._C._GLIBCXX_USE_CXX11_ABI)
    assert described["missing"] == []
