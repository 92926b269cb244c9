"""Where ranks of one host leave together."""

import mmap
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torchcomms.bench.starting_line import StartingLine

_LINE = 64  # bytes a rank


def _lines(size: int, limit_s: float = 60) -> list[StartingLine]:
    with tempfile.TemporaryFile() as file:
        file.truncate(size * _LINE)
        return [StartingLine(mmap.mmap(file.fileno(), 0), r, size, limit_s) for r in range(size)]


def test_nobody_leaves_before_all_have_come():
    size, turns = 3, 50
    arrived = [0] * size

    def run(rank: int, line: StartingLine) -> int:
        early = 0
        for turn in range(1, turns + 1):
            arrived[rank] = turn
            line.meet()
            early += min(arrived) < turn
        return early

    with ThreadPoolExecutor(size) as pool:
        assert list(pool.map(run, range(size), _lines(size))) == [0] * size


def test_who_waits_in_vain_says_so():
    first, _ = _lines(2, limit_s=0.01)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        first.meet()


def test_rank_0_shares_its_memory_and_leaves_no_file():
    paths = []

    def broadcast_text(path: str) -> str:
        paths.append(path)
        return path

    def agree(value: bool) -> bool:
        return value

    first = StartingLine.make(0, 2, 1, broadcast_text, agree)
    assert first is not None
    assert not Path(paths[0]).exists()


def test_ranks_of_other_hosts_meet_elsewhere():
    line = StartingLine.make(1, 2, 1, lambda _: "/no/such/file", lambda value: value)
    assert line is None
