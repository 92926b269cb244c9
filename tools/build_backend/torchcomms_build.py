"""The PEP 517 backend: scikit-build-core, told which torch to build against (see outer_torch)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import outer_torch
import switches
from scikit_build_core import build as skbuild

sys.path.append(str(Path(__file__).resolve().parents[1]))
from devtool.machine import parallel_jobs

Settings = dict[str, "list[str] | str"] | None


def settings_for_build(config_settings: Settings) -> dict[str, list[str] | str]:
    """The user's settings, the torch folder, and the contract's CMAKE_BUILD_TYPE variable."""
    switches.export(config_settings)
    settings = dict(config_settings or {})
    found = outer_torch.find()
    if found is None:
        raise SystemExit(
            "torchcomms: no torch to build against. Install torch first (pip install torch), or "
            "set TORCHCOMMS_TORCH_DIR to the folder of one."
        )
    settings["cmake.define.TORCHCOMMS_TORCH_DIR"] = found.dir
    settings.setdefault("cmake.build-type", os.environ.get("CMAKE_BUILD_TYPE", "RelWithDebInfo"))
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(parallel_jobs()))
    print(f"torchcomms: building against torch {found.public} in {found.dir}", flush=True)
    return settings


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*skbuild.get_requires_for_build_wheel(config_settings), *outer_torch.requirements()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [*skbuild.get_requires_for_build_editable(config_settings), *outer_torch.requirements()]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return skbuild.get_requires_for_build_sdist(config_settings)


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    return skbuild.prepare_metadata_for_build_wheel(
        metadata_directory, settings_for_build(config_settings)
    )


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    return skbuild.prepare_metadata_for_build_editable(
        metadata_directory, settings_for_build(config_settings)
    )


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return skbuild.build_wheel(
        wheel_directory, settings_for_build(config_settings), metadata_directory
    )


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return skbuild.build_editable(
        wheel_directory, settings_for_build(config_settings), metadata_directory
    )


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    return skbuild.build_sdist(sdist_directory, config_settings)
