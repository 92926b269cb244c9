"""Headers with plain `//` comments, in the form that Doxygen reads as documentation."""

from __future__ import annotations

import re

# What a contract in a comment begins with; each is a paragraph of its own on the page.
LABELS = (
    "Blocks", "Failure", "Lifetime", "Limits", "Order", "Returns", "Scope", "Threads", "Throws",
    "Units",
)  # fmt: skip
LABEL = re.compile(rf"^(?:{'|'.join(LABELS)}): ")

_COMMENT = re.compile(r"^(?P<indent>\s*)//(?!/)\s?(?P<text>.*)$")
_TRAILING = re.compile(r"^(?P<code>\s*[^\s/#}].*?\S)(?P<space>\s+)//\s?(?P<text>.*)$")
_SPECIAL = re.compile(r"[@\\<>&#\"%]")


def escaped(text: str) -> str:
    """Comment text that means nothing to Doxygen: a backslash before each special character."""
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", text)


def in_doxygen_form(text: str) -> str:
    """A header whose `//` comments are documentation.

    A block of comments belongs to the declaration below it; a block with an empty line below it is
    about the file. A comment behind code belongs to that code, as do the lines that continue it.
    """
    lines = text.splitlines()
    out: list[str] = []
    column: int | None = None  # of the trailing comment above, if it may go on
    for number, line in enumerate(lines):
        trailing = _TRAILING.match(line)
        comment = _COMMENT.match(line)
        if comment:
            if column == len(comment["indent"]):
                out.append(f"{comment['indent']}///< {escaped(comment['text'])}")
                continue
            column = None
            out.append(comment_line(lines, number, comment))
        elif trailing and is_prose(trailing):
            column = len(trailing["code"]) + len(trailing["space"])
            out.append(f"{trailing['code']}{trailing['space']}///< {escaped(trailing['text'])}")
        else:
            column = None
            out.append(line)
    return "\n".join(out) + "\n"


def comment_line(lines: list[str], number: int, comment: re.Match[str]) -> str:
    """One line of a comment block that is above a declaration, or about the file."""
    first = number
    while first > 0 and _COMMENT.match(lines[first - 1]):
        first -= 1
    last = number
    while last + 1 < len(lines) and _COMMENT.match(lines[last + 1]):
        last += 1
    indent, text = comment["indent"], comment["text"]
    below = lines[last + 1].strip() if last + 1 < len(lines) else ""
    is_about_file = not below or below.startswith("#if")
    start = ""
    if number == first:
        start = f"{indent}/// @file\n" if is_about_file else ""
    elif LABEL.match(text):
        start = f"{indent}///\n"
    return f"{start}{indent}/// {escaped(text)}"


def is_prose(trailing: re.Match[str]) -> bool:
    """Whether text behind code is for readers: not part of a string, nor for a linter."""
    is_in_string = trailing["code"].count('"') % 2 == 1
    return not is_in_string and not trailing["text"].startswith("NOLINT")
