"""Describes an installed torch as one JSON object, without importing it.

    python probe_torch.py              the torch of this interpreter
    python probe_torch.py --dir DIR    the torch in DIR

Importing torch takes seconds and starts its libraries; reading its files takes milliseconds and
also works for a torch that belongs to another environment. Python's standard library only.
Exit status 1 and one sentence on stderr when there is no torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from pathlib import Path

# What a build needs, relative to the torch folder.
NEEDED = (
    "include/ATen/core/Tensor.h",
    "include/torch/csrc/distributed/c10d/Backend.hpp",
    "include/pybind11/pybind11.h",
    "lib/libc10.so",
    "lib/libtorch_cpu.so",
    "lib/libtorch_python.so",
)

# c10::Error's constructor takes a std::string: its mangled name tells the string's ABI.
CXX11_STRING = re.compile(rb"_ZN3c105ErrorC[12]\w*NSt7__cxx1112basic_string")


def find_torch() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def describe(folder: Path) -> dict[str, object]:
    names: dict[str, object] = {}
    version_file = folder / "version.py"
    exec(compile(version_file.read_text(), str(version_file), "exec"), names)
    version = str(names["__version__"])
    public = version.partition("+")[0]
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    cxx11 = True
    if not missing:
        cxx11 = CXX11_STRING.search((folder / "lib/libc10.so").read_bytes()) is not None
    return {
        "dir": str(folder),
        "version": version,
        "public": public,
        "minor": ".".join(public.split(".")[:2]),
        "cuda": str(names.get("cuda") or ""),
        "hip": str(names.get("hip") or ""),
        "cxx11_abi": int(cxx11),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "missing": missing,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, help="the torch folder to describe")
    args = parser.parse_args()
    folder = args.dir or find_torch()
    if folder is None or not (folder / "version.py").is_file():
        where = args.dir or f"the environment of {sys.executable}"
        print(f"no torch in {where}", file=sys.stderr)
        return 1
    print(json.dumps(describe(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
