"""The little Markdown that the documentation tests need: fenced blocks, tables, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\((?P<target>[^)\s]+)\)|<img[^>]*src=\"(?P<source>[^\"]+)\"")
_CELL_END = re.compile(r"(?<!\\)\|")


def pages() -> list[Path]:
    """Every Markdown file a reader is meant to open, in a stable order."""
    found = [ROOT / "README.md", ROOT / "HACKING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.is_file()]


def name_of(page: Path) -> str:
    """The path as the repository knows it; the id of a test case."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, and the line its first line stands on."""

    language: str
    words: tuple[str, ...]
    line: int
    text: str


@dataclass(frozen=True)
class Row:
    """A table row by column title, the headings above it, and the line it stands on."""

    cells: dict[str, str]
    heading: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page. An unclosed fence is an error."""
    out: list[Block] = []
    start: tuple[int, str, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if start is None:
            if fence:
                start, lines = (number + 1, fence["info"].strip(), fence["indent"]), []
        elif fence and not fence["info"].strip():
            language, *words = start[1].split() or [""]
            out.append(Block(language, tuple(words), start[0], "\n".join(lines) + "\n"))
            start = None
        else:
            lines.append(line.removeprefix(start[2]))
    assert start is None, f"{name_of(page)}:{start and start[0] - 1}: a code fence is not closed"
    return out


def prose(page: Path) -> list[tuple[int, str]]:
    """Numbered lines outside of fenced blocks."""
    out, fenced = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            out.append((number, line))
    return out


def links(page: Path) -> list[tuple[int, str]]:
    """Targets of links and images, with their lines; code spans do not count."""
    out = []
    for number, line in prose(page):
        plain = re.sub(r"`[^`]*`", "code", line)
        out += [(number, m["target"]) for m in _LINK.finditer(plain)]
        out += [(number, m["target"] or m["source"]) for m in _IMAGE.finditer(plain)]
    return out


def anchors(page: Path) -> set[str]:
    """The fragment of each heading, as code hosts derive it."""
    out: set[str] = set()
    for _, line in prose(page):
        if line.startswith("#"):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
            out.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
    return out


def rows(page: Path) -> list[Row]:
    """All table rows of a page. A row with another number of cells than its head is an error."""
    out: list[Row] = []
    heading, head = "", None
    for number, line in prose(page):
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not line.startswith("|"):
            head = None
            continue
        cells = [c.strip().replace("\\|", "|") for c in _CELL_END.split(line.strip())[1:-1]]
        if head is None:
            head = cells
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            at = f"{name_of(page)}:{number}"
            assert len(cells) == len(head), f"{at}: {len(cells)} cells, the head has {len(head)}"
            out.append(Row(dict(zip(head, cells, strict=True)), heading, number))
    return out


def code_spans(text: str) -> list[str]:
    """The texts between backticks."""
    return re.findall(r"`([^`]+)`", text)
