"""docs/reports has one page and at most one data file a subject, and stays small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, links

REPORTS = ROOT / "docs" / "reports"
MOST_BYTES = 700_000


def test_a_file_belongs_to_the_page_of_its_name_which_shows_it() -> None:
    for file in REPORTS.iterdir():
        if file.suffix != ".md":
            page = file.with_suffix(".md")
            assert page.is_file(), f"{file.name} has no page"
            assert file.name in {target for _, target in links(page)}, f"{page.name} has no link"
    data = [file.stem for file in REPORTS.iterdir() if file.suffix in (".json", ".jsonl")]
    assert len(data) == len(set(data))


def test_all_of_them_are_small() -> None:
    assert sum(file.stat().st_size for file in REPORTS.iterdir()) <= MOST_BYTES


def test_lines_become_the_same_picture_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.gpu import pictures

    lines = [
        {"op": op, "variant": variant, "bytes": size, "p50_us": 2.0, "p99_us": 3.0}
        for op in (*pictures.PANELS, "send")
        for variant in pictures.SIDES
        for size in (1024, 4096)
    ]
    (tmp_path / pictures.LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = []
    for _ in range(2):
        pictures.main(["--reports", str(tmp_path)])
        texts.append((tmp_path / pictures.PICTURE).read_text())
    assert texts[0] == texts[1]
    assert all(word in texts[0] for word in (*pictures.PANELS, *pictures.SIDES.values()))
    assert "send" not in texts[0]
