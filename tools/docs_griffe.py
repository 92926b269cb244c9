"""Griffe extension: docstrings as terminals show them, in the form that the site needs.

Griffe asks for an empty line above a section, and Markdown takes `<factor>` for HTML.
"""

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


def without_html(text: str) -> str:
    """The docstring with `<name>` as text; code spans stay as they are.

    >>> without_html("premul_sum:<factor> or `<factor>`")
    'premul_sum:&lt;factor> or `<factor>`'
    """
    parts = text.split("`")
    parts[::2] = [re.sub(r"<(?=[A-Za-z/])", "&lt;", part) for part in parts[::2]]
    return "`".join(parts)


class Docstrings(griffe.Extension):
    """Changes every docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object, **_kwargs: Any) -> None:  # noqa: ANN401
        if obj.docstring is not None:
            obj.docstring.value = without_html(spaced(obj.docstring.value))
