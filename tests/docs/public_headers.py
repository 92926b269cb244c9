"""The names that the public headers declare outside of classes: types, constants, functions.

clang-format leaves what a namespace holds at the begin of a line, so that lines tell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.markdown import ROOT

HEADERS = ROOT / "include" / "torchcomms"
# What the other headers for kernels are made of; a program names nothing of it.
_PARTS = {f"device/{name}.hpp" for name in ("copy", "handle", "memory", "types")}
_NAMESPACE = re.compile(r"namespace (torch(?:::comms|comms)[\w:]*) \{")
_TYPE = re.compile(
    r"(?:class|struct|enum(?: class)?) (?:alignas\(\d+\) )?(?:TC_API )?(\w+)(?: final)?(?: :| \{)"
)
_ALIAS = re.compile(r"using (\w+) =")
_CONSTANT = re.compile(r"inline constexpr ")
_VALUE = re.compile(r"\b(k[A-Z]\w*)\s*[={]")
_MACRO = re.compile(r"#define (TORCHCOMM\w+)")  # those of TC_ are of the headers themselves
_C_FUNCTION = re.compile(r"TC_SYMBOL [\w\s*]*?(\w+)\(")
_FUNCTION = re.compile(
    r"(?!using |static_assert|template)(?:\[\[noreturn\]\] )?[A-Za-z_][\w:<>,*&\s]*?[\s*&](\w+)\("
)


def names_of(text: str) -> Iterator[str]:
    """The qualified names of one header; of C functions and macros the name alone."""
    space = ""
    for line in text.splitlines():
        if found := _NAMESPACE.match(line):
            space = found[1]
        elif found := _MACRO.match(line) or _C_FUNCTION.match(line):
            yield found[1]
        elif _CONSTANT.match(line):
            yield from (f"{space}::{name}" for name in _VALUE.findall(line))
        elif found := _TYPE.match(line) or _ALIAS.match(line) or _FUNCTION.match(line):
            yield f"{space}::{found[1]}"


def public_names() -> set[str]:
    headers = [
        header
        for header in HEADERS.rglob("*.hpp")
        if str(header.relative_to(HEADERS)) not in _PARTS
    ]
    return {name for header in headers for name in names_of(header.read_text())}
