"""Which tests changed files concern: `./dev test --changed`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .history import branch_point
from .paths import ROOT
from .rooms import Rooms, rooms
from .shell import Failure

CPP = (".cpp", ".hpp", ".cu", ".cuh", ".h", ".c")
PACKAGE = "python/torchcomms/"
# The backends of a room, where it has more than the one of its name.
BACKENDS_OF = {"backends/nccl": ("nccl", "nccl-lazy", "rccl", "rcclx")}
BACKENDS_OF |= {f"backends/{name}": (name,) for name in ("ctran", "fake", "gloo", "ncclx", "xccl")}
# What all backends run on.
SHARED = {"core", "hooks", "interop"}
# Files of the documentation outside of docs/.
DOCUMENTATION = ("HACKING.md", "README.md", "mkdocs.yml")
# Files that no test reads.
UNTESTED = re.compile(r"LICENSE|\.gitignore|\.ci/.*")


@dataclass(frozen=True)
class Selection:
    """The tests to run. None: all of them."""

    cpp: tuple[str, ...] | None = ()  # names of ctest
    python: tuple[str, ...] | None = ()  # paths, for pytest
    backends: tuple[str, ...] | None = None  # of the worlds that those run on

    @property
    def is_empty(self) -> bool:
        return self.cpp == () and self.python == ()

    def words(self) -> str:
        """One line for the user."""
        cpp = "all C++ tests" if self.cpp is None else f"{len(self.cpp)} C++ test programs"
        python = "all Python tests" if self.python is None else f"{len(self.python)} Python paths"
        worlds = "" if self.backends is None else f", worlds of {', '.join(self.backends)}"
        return f"{cpp}, {python}{worlds}"


EVERYTHING = Selection(None, None)  # of a change that no rule of select() knows


def select(
    files: Iterable[str],
    rooms: Rooms,
    test_files: dict[str, str],
    package_files: dict[str, str],
) -> Selection:
    """The tests that changes of these files concern.

    `test_files` and `package_files` give the text of every Python test and of every file of the
    package, by path. Paths are relative to the root.
    """
    changed_rooms: set[str] = set()
    whole_rooms: set[str] = set()  # those whose sources, not only tests, have changed
    python: set[str] = set()
    for path in files:
        if UNTESTED.fullmatch(path):
            continue
        room = rooms.of(path)
        if room is not None and path.endswith(CPP):
            changed_rooms.add(room)
            if path.startswith("src/"):
                whole_rooms.add(room)
        elif path in test_files and _is_test(path):
            python.add(path)
        elif path.startswith("docs/") or path in DOCUMENTATION:
            python.add("tests/docs")
        elif path.startswith(("examples/", "benchmarks/", "tools/")) and path.endswith(".py"):
            python |= _that_mention(Path(path).stem, test_files)
        elif path.startswith(PACKAGE) and "/" in path.removeprefix(PACKAGE):
            part = path.removeprefix(PACKAGE).partition("/")[0]
            for one in _that_import(part, package_files):
                python |= _that_mention(one, test_files)
        else:
            return EVERYTHING
    # A source is in the test programs of its room and of all rooms above it, a test in one.
    above = rooms.above(whole_rooms)
    cpp = {f"test_{room.replace('/', '_')}" for room in changed_rooms | above}
    if not whole_rooms:
        return Selection(tuple(sorted(cpp)), tuple(sorted(python)))
    backends = {name for room in above for name in BACKENDS_OF.get(room, ())}
    is_shared = above & SHARED or "bindings" in whole_rooms or not backends
    every = tuple(sorted({*cpp, "test_library"}))
    return Selection(every, None, None if is_shared else tuple(sorted(backends)))


def _that_mention(word: str, test_files: dict[str, str]) -> set[str]:
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    return {path for path, text in test_files.items() if pattern.search(text) and _is_test(path)}


def _is_test(path: str) -> bool:
    return Path(path).name.startswith("test_")


def _that_import(part: str, package_files: dict[str, str]) -> set[str]:
    """The part of the package and those that import it, however far up."""
    found, todo = {part}, [part]
    while todo:
        name = re.escape(todo.pop())
        pattern = re.compile(rf"torchcomms\.{name}\b|from torchcomms import [^\n]*\b{name}\b")
        for path, text in package_files.items():
            own = path.removeprefix(PACKAGE).partition("/")[0].removesuffix(".py")
            if own not in found and pattern.search(text):
                found.add(own)
                todo.append(own)
    return found


# ---- git, and the files of this checkout


def changed_since(commit: str) -> list[str]:
    """Files that differ from the commit, those not yet added included. Throws: Failure."""
    git = ("git", "-C", str(ROOT))
    told = subprocess.run(
        [*git, "diff", "--name-only", "--no-renames", commit, "--"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if told.returncode != 0:
        raise Failure(f"--since {commit}: {told.stderr.strip()}")
    new = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted({*told.stdout.splitlines(), *new.stdout.splitlines()})


def default_commit() -> str:
    """Where this branch left origin/main; HEAD without one."""
    return branch_point() or "HEAD"


def selection(commit: str, say: Callable[[str], None]) -> Selection:
    """The tests that what has changed since the commit concerns. Throws: Failure."""
    files = changed_since(commit)
    chosen = select(files, rooms(), _texts("tests"), _texts("python"))
    say(f"{len(files)} files have changed since {commit[:12]}: {chosen.words()}")
    return chosen


def _texts(folder: str) -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / folder).rglob("*.py")}
