#!/usr/bin/env python3
"""Runs clang-tidy over the files of src/ that build/dev compiled; remembers clean files.

    tools/clang_tidy.py [--fix] [FILE...]

A file is looked at again when it, a header of ours it includes, or .clang-tidy has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os.path import normpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "dev"
DATABASE = ROOT / "build" / "tidy"  # is configured, never built: a command for each file
PROGRAM = ROOT / ".venv" / "bin" / "clang-tidy"
CLEAN = ROOT / ".cache" / "clang-tidy"

sys.path.append(str(ROOT / "tools"))

from devtool.machine import parallel_jobs  # noqa: E402 (the path comes first)


def dependencies() -> dict[Path, list[Path]]:
    """Every source of src/ that the build compiled, and the files of ours it was compiled from."""
    ninja = [PROGRAM.with_name("ninja"), "-C", BUILT, "-t", "deps"]
    listing = subprocess.run(ninja, capture_output=True, text=True, check=True).stdout
    found = {}
    for block in listing.split("\n\n"):
        # With a compiler cache they are relative, with ".." in them.
        names = [Path(normpath(BUILT / line.strip())) for line in block.splitlines()[1:]]
        near = [
            name for name in names if name.is_relative_to(ROOT) and "torch/include" not in str(name)
        ]
        # Headers of a room are reached through a link.
        ours = sorted({name.resolve() for name in near if name.is_file()})
        # Several sources may have been compiled as one.
        sources = (name for name in near if name.suffix == ".cpp" and name.exists())
        found.update((name, ours) for name in sources if name.is_relative_to(ROOT / "src"))
    return found


def configure() -> None:
    """Writes the compile commands."""
    command = [PROGRAM.with_name("cmake"), "--preset", "dev", "-B", DATABASE]
    command += ["-DTORCHCOMMS_JOINED_FILES=1"]
    command += [f"-DCMAKE_MAKE_PROGRAM={PROGRAM.with_name('ninja')}"]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def fingerprint(file: Path, made_from: list[Path]) -> str:
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes() + str(file).encode())
    for path in made_from:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="apply the fixes clang-tidy offers")
    parser.add_argument("files", nargs="*", type=Path, help="default: every source the build has")
    args = parser.parse_args()
    if not (BUILT / "compile_commands.json").exists():
        parser.error("there is no build/dev; run ./dev build first")
    configure()
    known = dependencies()
    CLEAN.mkdir(parents=True, exist_ok=True)

    def look_at(file: Path) -> bool:
        mark = CLEAN / fingerprint(file, known.get(file, [file]))
        if mark.exists():
            return True
        command = [PROGRAM, "-quiet", "-p", DATABASE, *(["-fix"] if args.fix else []), file]
        command += ["--extra-arg=-Wno-ignored-gch"]  # g++ made the precompiled headers
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            mark.touch()
        else:
            print(done.stdout or done.stderr, flush=True)
        return done.returncode == 0

    files = [file.resolve() for file in args.files] or sorted(known)
    if not files:
        parser.error("the build knows no sources of src/: nothing would be looked at")
    # Fixes in a header must not be applied by two processes at once.
    with ThreadPoolExecutor(1 if args.fix else parallel_jobs()) as pool:
        results = list(pool.map(look_at, files))
    print(f"clang-tidy: {results.count(False)} of {len(files)} files with findings")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
