"""The metadata that depends on the build: version, torch requirement, backends' entry points."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import outer_torch

ROOT = Path(__file__).resolve().parents[2]


def entry_points(hip: str) -> dict[str, dict[str, str]]:
    """Those of the backends by group, from the one table in cmake/Backends.cmake."""
    cmake = shutil.which("cmake")
    if cmake is None:
        raise SystemExit("torchcomms: cmake is not on PATH")
    script = ROOT / "cmake" / "print_parts.cmake"
    done = subprocess.run(
        [cmake, f"-DHIP={hip}", "-P", script], capture_output=True, text=True, check=True
    )
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(done.stdout)
    return {group: dict(parser[group]) for group in parser.sections()}


class Metadata:
    """A provider for [[tool.dynamic-metadata]]."""

    def __init__(self) -> None:
        self.state = "wheel"

    def build_state(self, state: str) -> None:
        self.state = state

    def dynamic_wheel(self, _settings: Mapping[str, Any]) -> dict[str, bool]:
        return {"dependencies": True}

    def dynamic_metadata(
        self, settings: Mapping[str, Any], _project: Mapping[str, Any]
    ) -> dict[str, Any]:
        version = os.environ.get("BUILD_VERSION") or (ROOT / "VERSION").read_text().strip()
        torch = "torch>=2.11"
        points: dict[str, dict[str, str]] = {}
        if self.state != "sdist":
            found = outer_torch.find()
            assert found is not None, "torchcomms_build refuses to build without torch"
            torch = f"torch=={found.minor}.*"
            points = entry_points(found.hip)
        return {
            "version": version,
            "dependencies": [torch, *settings["dependencies"]],
            "entry-points": points,
        }
