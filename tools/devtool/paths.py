"""Where things are: one place for the folder names of the checkout."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".dev"  # logs and locks; may be deleted at any time
DEFAULT_TORCH = "2.15.0"


@dataclass(frozen=True)
class Workspace:
    """One torch version's virtual environment and build folder."""

    torch: str

    @property
    def suffix(self) -> str:
        return "" if self.torch == DEFAULT_TORCH else f"-torch{self.torch}"

    @property
    def venv(self) -> Path:
        return ROOT / f".venv{self.suffix}"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def build(self, preset: str = "dev") -> Path:
        return ROOT / "build" / f"{preset}{self.suffix}"

    @property
    def stage(self) -> Path:
        return self.build() / "stage"

    def environment(self) -> dict[str, str]:
        """The environment of everything run in this workspace: its programs are found first."""
        env = dict(os.environ)
        env["PATH"] = f"{self.venv / 'bin'}{os.pathsep}{env.get('PATH', '')}"
        env["VIRTUAL_ENV"] = str(self.venv)
        env.pop("PYTHONHOME", None)
        return env
