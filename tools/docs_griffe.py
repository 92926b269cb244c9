"""Griffe extension: an empty line above each section of a docstring, which Griffe asks for."""

from __future__ import annotations

import re
from typing import Any

import griffe

SECTION = re.compile(
    r"^(?P<title>Args|Attributes|Cost|Raises|Returns|Yields|Example|Examples):\s*$"
)


def spaced(text: str) -> str:
    """The docstring with an empty line above `Returns:` and its like.

    >>> spaced("Sends.\\n\\nArgs:\\n    a: it.\\nReturns:\\n    None.")
    'Sends.\\n\\nArgs:\\n    a: it.\\n\\nReturns:\\n    None.'
    """
    out: list[str] = []
    for line in text.splitlines():
        if SECTION.match(line) and out and out[-1].strip():
            out.append("")
        out.append(line)
    return "\n".join(out)


class SpacedSections(griffe.Extension):
    """Changes every docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object, **_kwargs: Any) -> None:  # noqa: ANN401
        if obj.docstring is not None:
            obj.docstring.value = spaced(obj.docstring.value)
