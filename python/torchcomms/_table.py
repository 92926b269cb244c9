"""Plain text tables for the event reader, the doctor, the benchmarks and the demo.

They have no color and no box characters, so that the output can be piped, searched and pasted into
an issue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()
) -> str:
    """Lines up `rows` under `headers`, two spaces apart; columns in `right` are right-aligned.

    `None` prints as "-". Unprintable characters, such as a line end, print escaped as in Python's
    strings. The result has no trailing newline and no trailing blanks.
    """
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]
    to_right = set(right)

    def line(parts: Sequence[str]) -> str:
        padded = (
            part.rjust(width) if i in to_right else part.ljust(width)
            for i, (part, width) in enumerate(zip(parts, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(headers), line(["-" * width for width in widths]), *map(line, cells)])


def printable(text: str) -> str:
    """Escapes unprintable characters as Python's strings do, so that the text has one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def human_bytes(count: int) -> str:
    """Converts 8 to "8", 1536 to "1.5K", 67108864 to "64M", as `bench` takes sizes."""
    value = float(count)
    for unit in ("", "K", "M", "G"):
        if value < 1024 or unit == "G":
            return f"{value:.1f}".rstrip("0").rstrip(".") + unit
        value /= 1024
    raise AssertionError("unreachable: the last unit always returns")
