#!/usr/bin/env python3
"""Writes the table of rooms in HACKING.md from tools/house.toml.

tools/house.py            write the table
tools/house.py --check    compare; exit status 1 if the table is not up to date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tools" / "house.toml"
PAGE = ROOT / "HACKING.md"
BEGIN = "<!-- rooms: made by tools/house.py from tools/house.toml -->\n"
END = "<!-- end of rooms -->\n"


def table(rooms: list[dict[str, str]]) -> str:
    """The rooms as a table in Markdown, in the order of the file."""
    rows = [f"| `src/{room['name']}` | {room['says']} |\n" for room in rooms]
    return "".join(["\n| folder | what it holds |\n|---|---|\n", *rows, "\n"])


def with_table(page: str, rooms: list[dict[str, str]]) -> str:
    """The page with the table between its two markers. Raises ValueError without a marker."""
    begin = page.index(BEGIN) + len(BEGIN)
    return page[:begin] + table(rooms) + page[page.index(END, begin) :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    old = PAGE.read_text()
    new = with_table(old, tomllib.loads(SOURCE.read_text())["room"])
    if not parser.parse_args().check:
        PAGE.write_text(new)
    elif new != old:
        print(f"{PAGE.name} is not up to date: run tools/house.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
