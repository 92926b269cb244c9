#!/usr/bin/env python3
"""Writes docs/internals/glossary.md, the words of this project, from tools/glossary.toml.

tools/glossary.py            write the page
tools/glossary.py --check    compare; exit status 1 if the page is not up to date
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tools" / "glossary.toml"
PAGE = ROOT / "docs" / "internals" / "glossary.md"
HEAD = """# Glossary

Find a word of the code or of an error text here.
The last column has the word of NCCL, MPI, UCX, c10d or CUDA.

<!-- Made by tools/glossary.py from tools/glossary.toml. Change that file, then run the script. -->
"""


def cell(text: str) -> str:
    """Text inside of a table."""
    return text.replace("|", "\\|")


def page(terms: list[dict[str, str]]) -> str:
    """The page: a table for each first letter, sorted without regard to case."""
    out = [HEAD]
    ordered = sorted(terms, key=lambda term: term["term"].lower())
    for letter, group in groupby(ordered, key=lambda term: term["term"][0].upper()):
        out += [f"\n## {letter}\n\n", "| term | meaning | elsewhere |\n|---|---|---|\n"]
        for term in group:
            cells = (f"**{term['term']}**", term["sentence"], term.get("field", ""))
            out.append(f"| {' | '.join(cell(text) for text in cells).rstrip()} |\n")
    return "".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    text = page(tomllib.loads(SOURCE.read_text())["term"])
    if not parser.parse_args().check:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        print(f"{PAGE.relative_to(ROOT)} is not up to date: run tools/glossary.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
