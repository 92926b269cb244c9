"""Every relative link of the documentation leads somewhere; every page is linked from somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, anchors, links, name_of, pages

PAGES = pages()


def _target(page: Path, link: str) -> tuple[Path, str]:
    path, _, fragment = link.partition("#")
    return ((page.parent / path).resolve() if path else page), fragment


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_a_file_and_heading(page: Path) -> None:
    broken = []
    for line, link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        target, fragment = _target(page, link)
        if not target.is_relative_to(ROOT) or not target.exists():
            broken.append(f"{name_of(page)}:{line}: {link} does not exist")
        elif fragment and target.suffix == ".md" and fragment not in anchors(target):
            broken.append(f"{name_of(page)}:{line}: {link}: no such heading in {name_of(target)}")
    assert not broken, "\n".join(broken)


def test_every_page_can_be_reached_from_the_map() -> None:
    """docs/README.md leads, directly or over other pages, to each page below docs/."""
    start = ROOT / "docs" / "README.md"
    seen, todo = {start}, [start]
    while todo:
        page = todo.pop()
        for _, link in links(page):
            target, _ = _target(page, link) if "://" not in link else (page, "")
            if target.suffix == ".md" and target.is_file() and target not in seen:
                seen.add(target)
                todo.append(target)
    lost = [name_of(p) for p in PAGES if p.is_relative_to(ROOT / "docs") and p not in seen]
    assert not lost, f"no link leads to {lost}"
