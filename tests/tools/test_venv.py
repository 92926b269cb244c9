"""./dev's virtual environment: what does not fit on the disk is refused before the download."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from devtool import venv
from devtool.shell import Failure

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize("free", [1.5, 9.9, 10.1])
def test_a_first_installation_needs_room_for_what_is_downloaded_and_installed(
    free: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, int(free * 1e9)))
    if free > venv.INSTALLED_GB + venv.DOWNLOADED_GB:
        venv.require_room(tmp_path)
        return
    with pytest.raises(Failure, match=f"about 10 GB of disk at {tmp_path}: {free} GB are free"):
        venv.require_room(tmp_path)
