"""The pictures of the GPU reports are those of the lines beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu import pictures

REPORTS = Path(pictures.ROOT, "docs/reports")
pytest.importorskip("matplotlib")


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.name)
def test_every_side_of_a_picture_is_measured_and_a_report_shows_it(picture):
    samples = pictures.samples_of(picture, REPORTS)
    assert {each.side for each in samples} == set(picture.sides)
    shown = [
        page.name for page in REPORTS.glob("*.md") if f"({picture.name}.svg)" in page.read_text()
    ]
    assert shown, f"no report has {picture.name}.svg"
    assert (REPORTS / f"{picture.name}.svg").is_file()


def test_lines_become_a_picture_with_all_sides_and_their_panels(tmp_path):
    row = {"p50_us": 2.0, "p99_us": 3.0}
    lines = [
        {**row, "op": op, "variant": variant, "bytes": size}
        for op in ("all_reduce", "send")
        for variant in pictures.BUFFERS
        for size in (1024, 4096)
    ]
    for source in ("kernels.jsonl", "kernels_2gpus.jsonl"):
        (tmp_path / source).write_text("".join(json.dumps(line) + "\n" for line in lines))
    pictures.main(["--reports", str(tmp_path)])
    text = (tmp_path / "kernels.svg").read_text()
    assert "all_reduce" in text
    assert "send" not in text
    assert all(side in text for side in pictures.BUFFERS.values())
    pictures.main(["--reports", str(tmp_path)])
    assert (tmp_path / "kernels.svg").read_text() == text
    assert "send" in (tmp_path / "kernels_messages.svg").read_text()
