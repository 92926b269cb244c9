"""What tools/tidy.py holds against names and prose: homonyms, full folders, banned words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from .history import BASE, branch_point, git

# A definition with a body. Attributes, macros of ours and alignment may stand before the name.
TYPE = re.compile(
    r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
    r"(?:alignas\([^)]*\)\s*)?(?:\[\[[^\]]*\]\]\s*)*(?:TC_\w+\s+)?"
    r"(?:\w+::)*(\w+)\s*(?:final\s*)?(?::(?!:)[^;{()]*)?\{"
)
# A name that a line declares: a type, an alias, or what stands between a type and a parenthesis.
DECLARED = re.compile(
    r"^\s*(?:class|struct|enum(?: class)?|union|using|def)\s+(?:TC_\w+\s+)?(\w+)"
    r"|^(?!\s*(?:return|throw|else|case|new|delete)\b)\s*(?:[\w:<>,*&\s]+[\s*&])(\w+)\([^;]*\)\s*(?:const\s*)?(?:noexcept\s*)?[;{]"
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
COMMENT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')


def types_of(text: str) -> Iterator[tuple[str, int]]:
    """The names of the types that a C++ file defines, with their lines."""
    bare = COMMENT.sub(lambda found: " " * len(found[0]), text)
    for found in TYPE.finditer(bare):
        yield found[1], text.count("\n", 0, found.start(1)) + 1


def homonyms(
    files: Iterable[tuple[str, str]], shared: Iterable[str]
) -> Iterator[tuple[str, int, str]]:
    """(path, line, what) of each type whose name another file defines too. `files`: path, text."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, text in files:
        for name, line in types_of(text):
            places[name].append((path, line))
    for name, found in places.items():
        if name in shared or len({path for path, _ in found}) < 2:
            continue
        for path, line in found:
            elsewhere = sorted({other for other, _ in found if other != path})
            yield path, line, f"type {name} is also defined in {', '.join(elsewhere[:3])}"


def full_folders(paths: Iterable[str], most: int) -> Iterator[tuple[str, int, str]]:
    """(path, line, what) of each folder with more than `most` of these files beside each other."""
    count: dict[str, int] = defaultdict(int)
    for path in paths:
        count[str(PurePath(path).parent)] += 1
    for folder, number in sorted(count.items()):
        if number > most:
            yield folder, 1, f"{number} C++ files in one folder; at most {most}: group them"


def words_of(name: str) -> set[str]:
    """The words of a name in snake_case or CamelCase, in small letters."""
    return {word.lower() for word in WORD.findall(name)}


def banned_names(
    lines: Iterable[tuple[str, int, str]], banned: dict[str, str]
) -> Iterator[tuple[str, int, str]]:
    """Of these lines (path, number, text), those that declare a name with a banned word."""
    for path, number, text in lines:
        found = DECLARED.match(text)
        name = found and (found[1] or found[2])
        for word in sorted(words_of(name) & banned.keys()) if name else ():
            yield path, number, f"{name}: {word!r} is no term; say {banned[word]}"


def riddles(
    lines: Iterable[tuple[str, int, str]], pattern: re.Pattern[str]
) -> Iterator[tuple[str, int, str]]:
    """Of these lines, comments that break the prose rule."""
    for path, number, text in lines:
        if found := pattern.search(text):
            yield path, number, f"{found[0].strip()!r}: say who does what (HACKING, 'Words')"


def new_lines() -> list[tuple[str, int, str]] | None:
    """(path, number, text) of what this tree adds to origin/main; None where there is none."""
    base = branch_point()
    if base is None:
        return None
    found, path, number = [], "", 0
    for line in (git("diff", "--unified=0", "-M", base) or "").splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif header := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(header[1])
        elif line.startswith("+"):
            found.append((path, number, line[1:]))
            number += 1
    return found


def long_subjects(most: int) -> list[str]:
    """The subjects of the commits since origin/main that are too long, or name no area."""
    listed = git("log", "--no-merges", "--format=%s", f"{BASE}..HEAD") or ""
    return [
        subject
        for subject in listed.splitlines()
        if len(subject) > most or not re.match(r"[\w/., -]+: \S", subject)
    ]
