"""Files of results: folders are made; what cannot be written is a typed error before the work."""

from __future__ import annotations

import pytest
from torchcomms import CommError, InvalidArgument, _output


def test_folders_are_made(tmp_path):
    path = tmp_path / "not" / "there" / "lines.jsonl"
    _output.prepare(path)
    assert path.parent.is_dir()
    assert not path.exists(), "made when there is something to write"


def test_no_file_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _output.prepare(None, _output.STDOUT)
    assert not list(tmp_path.iterdir())


def test_text_and_bytes_replace_what_was_there(tmp_path):
    path = tmp_path / "a" / "b"
    _output.write(path, "longer text, \u00e4")
    assert path.read_text(encoding="utf-8") == "longer text, \u00e4"
    _output.write(path, b"bytes")
    assert path.read_bytes() == b"bytes"


@pytest.mark.parametrize(
    ("below", "why"),
    [
        ("file/x.json", "file is not a folder"),
        ("file/deeper/x.json", "parents"),
        ("folder", "is a folder"),
        (f"{'n' * 300}/x.json", "cannot be made: File name too long"),
    ],
)
def test_what_cannot_be_is_told_before(tmp_path, below, why):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidArgument) as raised:
        _output.prepare(tmp_path / below)
    assert str(raised.value).startswith(f"{tmp_path / below} cannot be written: ")
    assert why in str(raised.value)


def test_what_fails_later_is_typed_too():
    with pytest.raises(CommError, match="/dev/full cannot be written: No space left"):
        _output.write(_output.Path("/dev/full"), "text")
