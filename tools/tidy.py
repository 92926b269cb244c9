#!/usr/bin/env python3
"""The house rules as a program: includes against the arrows, patterns of house.toml.

    tools/tidy.py            every file git knows or would add
    tools/tidy.py FILE...    these files

Prints one line a finding, `path:line: what`, and exits with 1 if there is any. Sizes, comments and
commit subjects are only reported. What is held against new names and lines alone needs origin/main.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from devtool import names
from devtool.rooms import CMAKE_FILES, KEYWORDS, TC_ROOM

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
CPP = {".hpp", ".cpp", ".cu", ".cuh", ".h"}
INCLUDE = re.compile(r'\s*#\s*include\s+(["<])([^">]+)[">]')
TORCH_HEADER = re.compile(r"(ATen|c10|caffe2|torch)/")
PYTHON_HEADER = re.compile(
    r"Python\.h|pybind11/|torch/csrc/(utils/pybind\.h|Exceptions\.h|autograd/python)"
)


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class House:
    """house.toml, asked about one file at a time."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.arrows: dict[str, list[str]] = {room["name"]: room["sees"] for room in table["room"]}
        self.sees: dict[str, list[str]] = table["sees"]
        self.python: dict[str, Any] = table["python"]
        self.lines: dict[str, int] = table["lines"]
        self.rules = [
            (re.compile(rule["pattern"]), rule["files"], rule["except"], rule["why"])
            for rule in table["rule"]
        ]

    def room_of(self, path: str) -> str | None:
        """ "backends/gloo" for src/backends/gloo/work.cpp; the longest room that holds it."""
        for prefix in ("src/", "tests/cpp/"):
            if path.startswith(prefix):
                inside = path.removeprefix(prefix)
                rooms = [room for room in self.arrows if inside.startswith(room + "/")]
                return max(rooms, key=len, default=None)
        return None

    def reaches(self, room: str, target: str) -> bool:
        allowed = [room, *self.arrows[room]]
        return any(target == name or target.startswith(name + "/") for name in allowed)

    def may_see(self, what: str, room: str) -> bool:
        return any(room == name or room.startswith(name + "/") for name in self.sees[what])


def project_files() -> list[str]:
    argv = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if (ROOT / path).is_file()]


def matches(path: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def check_includes(house: House, path: str, lines: list[str]) -> Iterator[Finding]:
    room = house.room_of(path)
    public = path.startswith("include/")
    if room is None and not public:
        if path.startswith("src/"):
            yield Finding(path, 1, "this folder is no room of tools/house.toml")
        return
    torch_free = path.startswith("include/torchcomms/base/") or (
        room is not None and not house.may_see("torch", room)
    )
    python_free = room is None or not house.may_see("python", room)
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        quote, header = found.groups()
        if ".." in Path(header).parts:
            yield Finding(path, number, f'"{header}": includes do not climb; name the room')
        if TORCH_HEADER.match(header) and torch_free:
            yield Finding(path, number, f"{header}: what lies below core builds without torch")
        if PYTHON_HEADER.match(header) and python_free:
            yield Finding(path, number, f"{header}: only bindings sees Python")
        is_free = header.startswith(("torchcomms/base/", "torchcomms/device/"))
        if header.startswith("torchcomms/") and not is_free and torch_free:
            why = f"{header}: only torchcomms/base/ and torchcomms/device/ are free of torch"
            yield Finding(path, number, why)
        if quote == '"' and not ((ROOT / path).parent / header).exists():
            yield from check_arrow(house, path, number, room, header)


def check_arrow(
    house: House, path: str, number: int, room: str | None, header: str
) -> Iterator[Finding]:
    target = house.room_of(f"src/{header}")
    if target is None:
        # A test may include what lies beside it; a public header has no business in src/.
        if not (ROOT / "tests/cpp" / header).exists() or not path.startswith("tests/"):
            yield Finding(path, number, f'"{header}" names no room')
    elif room is None:
        yield Finding(path, number, f'"{header}": a public header includes public headers only')
    elif not house.reaches(room, target):
        yield Finding(path, number, f'"{header}": there is no arrow {room} -> {target}')


def check_rules(house: House, path: str, lines: list[str]) -> Iterator[Finding]:
    for pattern, files, exceptions, why in house.rules:
        if not matches(path, files) or matches(path, exceptions):
            continue
        for number, line in enumerate(lines, 1):
            if found := pattern.search(line.rstrip("\n")):
                yield Finding(path, number, f"{found[0].strip()!r}: {why}")


def check_python(house: House, path: str, lines: list[str]) -> Iterator[Finding]:
    folders = [f"python/{package}/" for package in house.python["public_only"]]
    if any(path.startswith(folder) for folder in folders):
        native = re.compile(house.python["native"])
        for number, line in enumerate(lines, 1):
            if native.search(line):
                package = Path(path).parent.name
                yield Finding(path, number, f"{package} uses only the public package")


def check_header(path: str, text: str) -> Iterator[Finding]:
    if Path(path).suffix in {".hpp", ".cuh"} and "#pragma once" not in text:
        yield Finding(path, 1, "a header starts with #pragma once")
    ours = not path.startswith("include/comms/")  # the reference's file names
    if ours and Path(path).suffix in CPP and not re.fullmatch(r"[a-z0-9_]+", Path(path).stem):
        yield Finding(path, 1, "file names are snake_case")


def check_build(house: House) -> Iterator[Finding]:
    """The rooms of the build may use an arrow of the house, or less of it."""
    for path in CMAKE_FILES:
        text = (ROOT / path).read_text()
        for found in TC_ROOM.finditer(text):
            room, words = found[1], found[2].split()
            number = text.count("\n", 0, found.start()) + 1
            if room not in house.arrows:
                yield Finding(path, number, f"{room} is no room of tools/house.toml")
                continue
            yield from check_room(house, room, words, path, number)


def check_room(
    house: House, room: str, words: list[str], path: str, number: int
) -> Iterator[Finding]:
    section = ""
    for word in words:
        if word in KEYWORDS:
            section = word
            if word in {"TORCH", "PYTHON"} and not house.may_see(word.lower(), room):
                yield Finding(path, number, f"{room} may not see {word.lower()}")
        elif section == "DEPENDS" and not house.reaches(room, word):
            yield Finding(path, number, f"there is no arrow {room} -> {word}")


def oversized(house: House, path: str, lines: list[str]) -> str | None:
    suffix = Path(path).suffix
    kind = {".hpp": "header", ".cuh": "header", ".cpp": "implementation", ".cu": "implementation"}
    limit = house.lines.get(kind.get(suffix, "python" if suffix == ".py" else ""))
    if limit and len(lines) > limit:
        return f"{path}: {len(lines)} lines, over {limit}: is there a second subject?"
    return None


def check_names(table: dict[str, Any], paths: Iterable[str]) -> Iterator[Finding]:
    """What concerns all files at once: types of one name, and folders that are too full."""
    ours = [path for path in paths if Path(path).suffix in CPP]
    texts = [
        (path, (ROOT / path).read_text())
        for path in ours
        if path.startswith(("src/", "include/")) and "/stubs/" not in path
    ]
    for found in names.homonyms(texts, table["names"]["shared"]):
        yield Finding(*found)
    inside = [path for path in ours if path.startswith("src/")]
    for found in names.full_folders(inside, table["folders"]["most"]):
        yield Finding(*found)


def check_new(table: dict[str, Any]) -> tuple[list[Finding], list[str]]:
    """Findings in what is new since origin/main, and what is only reported."""
    lines = names.new_lines()
    if lines is None:
        return [], [
            "new names, comments and commit subjects: not looked at, there is no origin/main"
        ]
    code = [line for line in lines if Path(line[0]).suffix in {*CPP, ".py", ".pyi"}]
    findings = [Finding(*found) for found in names.banned_names(code, table["banned"])]
    pattern = re.compile(table["prose"]["pattern"])
    prose = [line for line in lines if Path(line[0]).suffix in {*CPP, ".py", ".pyi", ".md"}]
    reports = [str(Finding(*found)) for found in names.riddles(prose, pattern)]
    most = table["prose"]["subject"]
    reports += [
        f"commit {subject!r}: write 'area: imperative subject' of at most {most} characters"
        for subject in names.long_subjects(most)
    ]
    return findings, reports


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="paths from the repository's root (default: all)")
    args = parser.parse_args()
    table = tomllib.loads((ROOT / "tools" / "house.toml").read_text())
    house = House(table)
    paths = args.files or project_files()
    findings, reports = ([], []) if args.files else check_new(table)
    if not args.files:
        findings += [*check_build(house), *check_names(table, paths)]
    for path in paths:
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue  # a picture
        lines = text.splitlines(keepends=True)
        if Path(path).suffix in CPP:
            findings += check_includes(house, path, lines)
            findings += check_header(path, text)
        findings += check_python(house, path, lines)
        findings += check_rules(house, path, lines)
        if size := oversized(house, path, lines):
            reports.append(size)
    for finding in findings:
        print(finding)
    for report in reports:
        print(f"(only reported) {report}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
