#!/usr/bin/env python3
"""Generates the type stubs of the native modules, python/torchcomms/<module>.pyi, or a folder of
them where a module has modules in it.

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
# Of all backends: the stubs ship whichever were built.
BACKENDS = ("ctran", "gloo", "nccl", "ncclx", "rccl", "rcclx", "xccl")
MODULES = ("_comms", "_vendor", *(f"_comms_{backend}" for backend in BACKENDS))
# Types of torch's that have no Python name before torch.cuda is loaded.
NO_PYTHON_NAME = r"c10::Allocator"


def give_back_module(module: ModuleType) -> None:
    """The package shows its main names as its own; the stub is of the module that makes them."""
    for value in vars(module).values():
        if getattr(value, "__module__", "") == "torchcomms":
            value.__module__ = module.__name__


def generate(name: str, folder: Path) -> dict[Path, str]:
    """The stubs' formatted texts, by path. Every unresolved type in a signature is an error."""
    module = importlib.import_module(f"torchcomms.{name}")
    give_back_module(module)
    pybind11_stubgen.main(
        [
            *(module.__name__, "--output-dir", str(folder), "--exit-code"),
            *("--ignore-invalid-expressions", NO_PYTHON_NAME),
            *("--enum-class-locations", f"RedOpType:{module.__name__}"),
        ]
    )
    config = ["--config", ROOT / "pyproject.toml"]
    package = folder / "torchcomms"
    stubs = sorted(package.rglob("*.pyi"))
    for stub in stubs:
        stub.write_text(stub.read_text().replace("-> ...:", "-> typing.Any:"))
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", *config, *stubs], check=True)
    return {PACKAGE / stub.relative_to(package): stub.read_text() for stub in stubs}


def present(name: str) -> set[Path]:
    """The stubs that there are."""
    return {path for path in PACKAGE.rglob("*.pyi") if path.relative_to(PACKAGE).parts[0] == name}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    status = 0
    for module in MODULES:
        with tempfile.TemporaryDirectory() as folder:
            made = generate(module, Path(folder))
        for path in sorted({*made, *present(module)}):
            old = path.read_text() if path.exists() else ""
            new = made.get(path, "")
            name = str(path.relative_to(ROOT))
            if not args.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(new) if path in made else path.unlink()
                print(f"{'wrote' if path in made else 'removed'} {name}")
            elif old != new:
                status = 1
                lines = (old.splitlines(True), new.splitlines(True))
                sys.stdout.writelines(difflib.unified_diff(*lines, name, "generated"))
                print(f"{name} is not up to date: run tools/stubs.py")
    return status


if __name__ == "__main__":
    sys.exit(main())
