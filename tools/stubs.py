#!/usr/bin/env python3
"""Generates the type stubs of the native modules, python/torchcomms/<module>.pyi.

    tools/stubs.py            write them
    tools/stubs.py --check    compare; exit status 1 and a difference where a stub is not up to date

Run with the Python of an environment that has the package, pybind11-stubgen and ruff (.venv).
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pybind11_stubgen

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "torchcomms"
# Backend modules have no names of their own: importing one registers its backend.
MODULES = ("_comms",)
# Types of torch's that have no Python name before torch.cuda is loaded.
NO_PYTHON_NAME = r"c10::Allocator"


def give_back_module(module: ModuleType) -> None:
    """The package shows its main names as its own; the stub is of the module that makes them."""
    for value in vars(module).values():
        if getattr(value, "__module__", "") == "torchcomms":
            value.__module__ = module.__name__


def generate(name: str, folder: Path) -> str:
    """The stub's text, formatted. Every unresolved type in a signature is an error."""
    module = importlib.import_module(f"torchcomms.{name}")
    give_back_module(module)
    pybind11_stubgen.main(
        [
            *(module.__name__, "--output-dir", str(folder), "--exit-code"),
            *("--ignore-invalid-expressions", NO_PYTHON_NAME),
            *("--enum-class-locations", f"RedOpType:{module.__name__}"),
        ]
    )
    stub = folder / "torchcomms" / f"{name}.pyi"
    stub.write_text(stub.read_text().replace("-> ...:", "-> typing.Any:"))
    config = ["--config", ROOT / "pyproject.toml"]
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", *config, stub], check=True)
    return stub.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    status = 0
    for module in MODULES:
        with tempfile.TemporaryDirectory() as folder:
            made = generate(module, Path(folder))
        path = PACKAGE / f"{module}.pyi"
        if not args.check:
            path.write_text(made)
            print(f"wrote {path.relative_to(ROOT)}")
            continue
        present = path.read_text() if path.exists() else ""
        if made != present:
            status = 1
            name = str(path.relative_to(ROOT))
            sys.stdout.writelines(
                difflib.unified_diff(
                    present.splitlines(True), made.splitlines(True), name, "generated"
                )
            )
            print(f"{name} is not up to date: run tools/stubs.py")
    return status


if __name__ == "__main__":
    sys.exit(main())
