"""Configure, compile, and stage the package so that the workspace's Python imports it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .machine import parallel_jobs
from .paths import DEFAULT_TORCH, Workspace
from .shell import exclusive, run_quietly
from .system import ensure_system_packages
from .venv import CHECK, ensure_venv

SCRIPT = """#!{python}
import sys

from torchcomms_cli import main

sys.exit(main())
"""


def set_up(workspace: Workspace) -> None:
    with exclusive(workspace.venv.name.lstrip(".")):
        ensure_system_packages()
        ensure_venv(workspace)


def set_up_checks() -> Workspace:
    """Linters live in the default workspace only, whatever torch is asked for; returns that one."""
    workspace = Workspace(DEFAULT_TORCH)
    set_up(workspace)
    with exclusive(workspace.venv.name.lstrip(".")):
        ensure_venv(workspace, (CHECK,))
    return workspace


def compile_preset(
    workspace: Workspace, preset: str, target: str = "all", compiler: Path | None = None
) -> Path:
    """Builds a CMake preset, or a target of it, in the workspace's own folder; returns that."""
    folder = workspace.build(preset)
    programs = workspace.venv / "bin"
    env = workspace.environment()
    configure = [
        programs / "cmake",
        "--preset",
        preset,
        "-B",
        folder,
        f"-DPython_EXECUTABLE={workspace.python}",
        f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}",
    ]
    if compiler is not None:
        configure.append(f"-DCMAKE_CXX_COMPILER={compiler}")
    run_quietly(f"configure {folder.name}", configure, env=env)
    build = [programs / "cmake", "--build", folder, "--target", target]
    build += ["--parallel", parallel_jobs()]
    run_quietly(f"build {folder.name}", build, env=env)
    return folder


def build(workspace: Workspace, target: str = "all") -> None:
    """`target`: "all", or "package" to leave the C++ tests out."""
    set_up(workspace)
    compile_and_stage(workspace, target)


def compile_and_stage(workspace: Workspace, target: str = "all") -> None:
    """What build() does in a workspace that is set up."""
    with exclusive(workspace.build().name):
        folder = compile_preset(workspace, "dev", target)
        stage(workspace, folder)


def stage(workspace: Workspace, folder: Path) -> None:
    """Lays the package out in build/dev/stage as links, and puts that folder on Python's path.

    Links, so that an edited Python file is live at once and a library is never rewritten under a
    program that runs it.
    """
    prune_dangling_links(workspace.stage)
    env = {**workspace.environment(), "CMAKE_INSTALL_MODE": "ABS_SYMLINK"}
    for component in ("torchcomms", "dev_info"):
        argv = [
            workspace.venv / "bin" / "cmake",
            "--install",
            folder,
            "--prefix",
            workspace.stage,
            "--component",
            component,
        ]
        run_quietly(f"stage {component}", argv, env=env)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run(
        [workspace.python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    write_if_changed(Path(site, "torchcomms-dev.pth"), f"{workspace.stage}\n")
    script = workspace.venv / "bin" / "torchcomms"
    write_if_changed(script, SCRIPT.format(python=workspace.python))
    script.chmod(0o755)


def prune_dangling_links(folder: Path) -> None:
    """Removes links to files that no longer exist, so that a deleted module cannot be imported."""
    for path in folder.rglob("*") if folder.exists() else ():
        if path.is_symlink() and not path.exists():
            path.unlink()


def write_if_changed(path: Path, text: str) -> None:
    if not (path.exists() and path.read_text() == text):
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(path)
