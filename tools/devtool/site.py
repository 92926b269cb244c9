"""The documentation site: its environment, its build in strict mode, and a local server."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from .paths import ROOT
from .shell import exclusive, run_quietly, say
from .system import base_python, ensure_doxygen

REQUIREMENTS = ROOT / "tools" / "requirements-docs.txt"
VENV = ROOT / ".venv-docs"
CONFIG = ROOT / "mkdocs.yml"
SITE = ROOT / "build" / "site"
HOST = "127.0.0.1"
# Material for MkDocs 9 prints a notice about later versions at each start otherwise.
ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
DEFAULT_PORT = 8000
MOST_PORT = 65535


def fingerprint(python: Path, requirements: Path) -> str:
    """Changes when another interpreter or another list of packages is wanted."""
    return hashlib.sha256(str(python).encode() + requirements.read_bytes()).hexdigest()


def set_up() -> None:
    """Installs Doxygen and the pinned packages if they are missing."""
    with exclusive("docs"):
        ensure_doxygen()
        stamp = VENV / "torchcomms-docs.stamp"
        python = base_python()
        wanted = fingerprint(python, REQUIREMENTS)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        run_quietly(f"venv {VENV.name}", [python, "-m", "venv", "--clear", VENV])
        pip = [VENV / "bin" / "python", "-m", "pip", "install", "--progress-bar", "off"]
        run_quietly(f"pip {VENV.name}", [*pip, "-r", REQUIREMENTS])
        stamp.write_text(wanted)


def build_command(folder: Path) -> list[str]:
    """MkDocs in strict mode: a warning, such as a broken link, fails the build."""
    program = str(VENV / "bin" / "mkdocs")
    return [program, "build", "--strict", "--config-file", str(CONFIG), "--site-dir", str(folder)]


def serve_command(port: int) -> list[str]:
    program = str(VENV / "bin" / "mkdocs")
    return [program, "serve", "--config-file", str(CONFIG), "--dev-addr", f"{HOST}:{port}"]


def build() -> None:
    """Builds the site into build/site. Throws: Failure if MkDocs reports a warning."""
    set_up()
    with exclusive("site"):
        run_quietly("documentation site", build_command(SITE), env=ENVIRONMENT)


def serve(port: int) -> int:
    """Shows the site, rebuilt whenever a page changes, until the caller interrupts it."""
    set_up()
    say(f"the site is at http://{HOST}:{port}/ after the first build; Ctrl-C ends the server")
    return subprocess.run(serve_command(port), cwd=ROOT, env=ENVIRONMENT, check=False).returncode
