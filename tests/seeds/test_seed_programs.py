"""Programs of the older documentation run unchanged, but for backend, device and GPU calls.

Each is a user's program: started as by torchrun, one by torchrun itself, and judged by its exit
code and by what it prints.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torchcomms

from tests.harness.programs import launched, torchrun

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(autouse=True)
def _gloo():
    if not torchcomms.is_backend_built("gloo"):
        pytest.skip("backend gloo is not part of this build")


def lines_of(program, size, *arguments, by_torchrun=False):
    """What the ranks printed, sorted: their lines come in any order, and may share one."""
    if by_torchrun:
        finished = [torchrun(PROGRAMS / program, size, *arguments)]
    else:
        finished = launched(PROGRAMS / program, size, *arguments, folder=PROGRAMS)
    out = "".join(one.expect_success().out for one in finished)
    before, *lines = re.split(r"(?=rank \d)", out)
    assert not before.strip(), out
    return sorted(line.strip() for line in lines)


@pytest.mark.parametrize("size", [2, 4])
def test_quick_start(size):
    total = float(sum(range(1, size + 1)))
    assert lines_of("quick_start.py", size, by_torchrun=size == 2) == sorted(
        [f"rank {r} of {size} before {r + 1.0}" for r in range(size)]
        + [f"rank {r} of {size} after {total} {total}" for r in range(size)]
    )


def test_asynchronous_operation():
    assert lines_of("asynchronous.py", 2) == [
        f"rank {r} {text}"
        for r in range(2)
        for text in ("completed True 3072.0", "does other work")
    ]


def test_basic_usage_with_a_file_store(tmp_path):
    assert lines_of("file_store.py", 2, str(tmp_path / "store")) == [
        f"rank {r} of 2 has {[1.0] * 10}" for r in range(2)
    ]


def test_asynchronous_messages_with_a_file_store(tmp_path):
    assert lines_of("file_store_async.py", 2, str(tmp_path / "store")) == [
        f"rank 0 of 2 has {[0.0] * 10}",
        f"rank 1 of 2 has {[5.0] * 10}",
    ]


def test_custom_options():
    assert lines_of("custom_options.py", 2) == [
        f"rank {r} 0:01:00 False value [2.0, 2.0]" for r in range(2)
    ]


def test_collectives():
    assert lines_of("collectives.py", 2) == sorted(
        f"rank {r} {text}"
        for r in range(2)
        for text in (
            "sync 1.0",
            "async 1.0 True",
            "list [1024.0, 2048.0]",
            "single [1024.0, 2048.0]",
            "overlapped 1.0 1.0 [2.0, 3.0]",
        )
    )


def test_all_to_all():
    want = []
    for r in range(4):
        want.append(f"rank {r} equal {[10000 * peer + 1024 * r for peer in range(4)]}")
        parts = [(100 * (r + 1) + peer, float(peer), float(peer)) for peer in range(4)]
        want.append(f"rank {r} uneven {parts}")
    assert lines_of("exchanges.py", 4) == sorted(want)


def test_messages_and_batches():
    assert lines_of("messages.py", 2) == sorted(
        [f"rank {r} message 1024.0" for r in range(2)]
        + [f"rank {r} batch {[2.0 - r] * 8}" for r in range(2)]
    )


def test_split_by_groups_and_properties():
    sums = {0: 1.0, 1: 1.0, 2: 5.0, 3: 5.0}
    assert lines_of("groups.py", 4) == sorted(
        [f"rank {r} sub {r % 2} of 2 sum {sums[r]}" for r in range(4)]
        + [f"rank {r} of 4 parent gloo cpu CommOptions" for r in range(4)]
    )


def test_hints_limits_and_options():
    assert lines_of("options.py", 2) == [
        f"rank {r} my_comm {[4.0] * 4} 0:00:30 value True" for r in range(2)
    ]
