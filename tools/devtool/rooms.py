"""The rooms of src, as CMake builds them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from .paths import ROOT

# The files with calls of tc_room(), and one of them: the room, and the words after it.
CMAKE_FILES = ("CMakeLists.txt", "cmake/Package.cmake")
TC_ROOM = re.compile(r"^\s*tc_room\(([\w/]+)\s*([^)]*)\)", re.MULTILINE)
KEYWORDS = {
    "FOLDERS",
    "DEPENDS",
    "TORCH",
    "PYTHON",
    "DEFINITIONS",
    "INCLUDES",
    "PRECOMPILE",
    "PRECOMPILED",
}


class Rooms:
    """The folders of src that CMake builds, and what each depends on, followed to the end."""

    def __init__(self, cmake: str) -> None:
        """`cmake`: text with the calls of tc_room()."""
        self._depends: dict[str, list[str]] = {}
        for room, words in TC_ROOM.findall(cmake):
            _, _, after = words.partition("DEPENDS")
            names = takewhile(lambda word: word not in KEYWORDS, after.split())
            self._depends[room] = list(names)

    def of(self, path: str) -> str | None:
        """The room of src/<room>/... or tests/cpp/<room>/...; None where there is none."""
        inside = re.sub(r"^(src|tests/cpp)/", "", path)
        rooms = [room for room in self._depends if inside.startswith(f"{room}/")]
        return max(rooms, key=len, default=None) if inside != path else None

    def above(self, changed: Iterable[str]) -> set[str]:
        """The rooms that are or reach one of these."""
        changed = set(changed)
        return {room for room in self._depends if self._reached(room) & changed}

    def _reached(self, room: str) -> set[str]:
        todo, seen = [room], {room}
        while todo:
            new = {*self._depends.get(todo.pop(), ())} - seen
            seen |= new
            todo += new
        return seen


def rooms() -> Rooms:
    """The rooms of this checkout."""
    return Rooms("\n".join((ROOT / path).read_text() for path in CMAKE_FILES))
