"""The USE_* build switches, wherever they were given, brought into the environment.

They may come as environment variables, through pip's --config-settings, or in CMAKE_ARGS. CMake and
the wheel's metadata must see the same ones, and both read the environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

DEFINE = re.compile(r"-D(USE_[A-Z_]+)(?::[A-Z]+)?=(.*)")


def words(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else str(value).split(";")


def collect(config_settings: Mapping[str, object] | None) -> dict[str, str]:
    arguments: list[str] = []
    for variable in ("CMAKE_ARGS", "SKBUILD_CMAKE_ARGS"):
        arguments += shlex.split(os.environ.get(variable, "").replace(";", " "))
    found: dict[str, str] = {}
    for name, value in (config_settings or {}).items():
        key = name.removeprefix("skbuild.")
        if key == "cmake.args":
            arguments += words(value)
        elif key.startswith("cmake.define.USE_"):
            found[key.removeprefix("cmake.define.")] = str(value)
    for argument in arguments:
        if match := DEFINE.fullmatch(argument.strip()):
            found.setdefault(match[1], match[2])
    return found


def export(config_settings: Mapping[str, object] | None) -> None:
    os.environ.update(collect(config_settings))
