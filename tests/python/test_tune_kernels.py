"""`torchcomms tune` of kernels: what won becomes lines about one GPU, and those decide."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torchcomms import algorithms
from torchcomms.bench import BenchError
from torchcomms.bench.tune_kernels import (
    Candidate,
    Effort,
    Timing,
    Winners,
    lines,
    merged,
    ranges,
    timing_of,
)
from torchcomms_cli.app import app
from typer.testing import CliRunner

from tests.harness.backends import CTRAN_KERNELS, NCCLX

LL, LINE = Candidate("one_shot_ll", 64), Candidate("one_shot_line", 128)
AUTO = Candidate("kernels", 0)
LAST = 1 << 62


def timings(**took):
    """`a8=(1, 2, 3)`: what AUTO, LL and LINE took at 8 bytes."""
    return [
        Timing(int(size[1:]), candidate, us)
        for size, all_us in took.items()
        for candidate, us in zip((AUTO, LL, LINE), all_us, strict=True)
    ]


def effort(**changes):
    return Effort(
        **{"operations": ["all_reduce"], "ranks": 2, "sizes": [8], "device": "host",
           "modes": ["eager"], **changes}
    )  # fmt: skip


def test_a_range_ends_where_something_else_is_clearly_faster():
    found = ranges(timings(a8=(10, 5, 9), a64=(10, 9.5, 9.4), a512=(10, 9, 5)))
    assert found == (
        (0, 511, "algorithm one_shot_ll blocks 64"),
        (512, LAST, "algorithm one_shot_line blocks 128"),
    )


def test_the_built_in_choice_stays_where_nothing_is_clearly_faster():
    assert ranges(timings(a8=(10, 9.5, 12))) == ((0, LAST, "algorithm kernels blocks 0"),)
    assert ranges([]) == ()


def test_what_ran_by_something_else_is_not_counted():
    point = SimpleNamespace(
        op="all_reduce", algorithm="two_shot_line", bytes=8, p50_us=1.0, correct=True
    )
    assert timing_of(LL, point) is None
    assert timing_of(AUTO, point) == Timing(8, AUTO, 1.0)
    point.algorithm = "nccl"
    assert timing_of(AUTO, point) == Timing(8, Candidate("nccl", 0), 1.0)
    point.correct = False
    with pytest.raises(BenchError, match="wrong values at 8 bytes"):
        timing_of(AUTO, point)


def test_modes_that_agree_have_one_line():
    some, other = ((0, LAST, LL.words),), ((0, LAST, LINE.words),)
    place = f"gpu host-memory ranks 2..2 bytes 0..{LAST} kind float mode"
    both = [Winners("all_reduce", "float", mode, some) for mode in ("eager", "graph")]
    assert lines(effort(), both) == [f"kernel all_reduce {place} any {LL.words}"]
    differ = [both[0], Winners("all_reduce", "float", "graph", other)]
    assert lines(effort(), differ) == [
        f"kernel all_reduce {place} eager {LL.words}",
        f"kernel all_reduce {place} graph {LINE.words}",
    ]
    assert lines(effort(), both[:1]) == [f"kernel all_reduce {place} eager {LL.words}"]


def test_lines_of_registered_tensors_and_of_few_blocks_come_before_the_others():
    tried = effort(tensors=["plain", "registered"], within=[16, 8], blocks=[12, 64])
    assert [place.words for place in tried.places()] == [
        " tensors registered within 8", " tensors registered within 16", " tensors registered",
        " within 8", " within 16", "",
    ]  # fmt: skip
    few, many = tried.places()[3], tried.places()[5]
    assert tried.blocks_of(few) == [8]
    assert tried.blocks_of(many) == [12, 64]
    sides = tried.sides("all_gather_single", tried.places()[1], {0: "/a/file"})
    assert list(sides) == [
        "ncclx@algorithm=auto/16@registered=true",
        "ncclx@algorithm=nccl",
        *(f"ncclx@algorithm={word}/{blocks}@registered=true"
          for word in ("one_shot_ll", "one_shot_line") for blocks in (12, 16)),
        "ncclx@tuning_file=/a/file@registered=true",
    ]  # fmt: skip
    won = Winners("all_reduce", "float", "eager", ((0, LAST, LL.words),), few)
    assert lines(tried, [won])[0].endswith(f"{LL.words} within 8")


def test_other_lines_stay_and_the_machine_is_named():
    def line(operation, gpu, ranks, algorithm):
        return (
            f"kernel {operation} gpu {gpu} ranks {ranks} bytes 0..{LAST} kind any mode any "
            f"algorithm {algorithm} blocks 0"
        )

    kept = [
        line("broadcast", "host-memory", "2..2", "nccl"),
        line("all_reduce", "nvidia-h200", "2..2", "nccl"),
        line("all_reduce", "host-memory", "3..3", "nccl"),
    ]
    old = "\n".join(
        ["torchcomms tuning 1", *kept, line("all_reduce", "host-memory", "2..2", "nccl")]
    )
    new = line("all_reduce", "host-memory", "2..2", "kernels")
    text = merged(old, effort(), [new])
    assert [each for each in text.splitlines() if each.startswith("kernel")] == [*kept, new]
    assert "# kernels, gpu host-memory, 2 ranks: " in text
    assert merged(text, effort(), [new]) == text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"operations": ["barrier"]}, "unknown operation 'barrier'; allowed: all_reduce"),
        ({"ranks": 9}, "ranks: 9 is not from 2 to 8"),
        ({"backend": "gloo"}, "unknown backend 'gloo'; allowed: ncclx, ctran"),
        ({"dtypes": ["bfloat16", "float32"]}, "one float type"),
        ({"blocks": [0]}, "blocks: allowed are"),
        ({"within": [2000]}, "within: allowed are"),
        ({"tensors": ["mine"]}, "unknown kind of tensors 'mine'; allowed: plain, registered"),
        ({"modes": ["graph"]}, "mode graph needs device cuda"),
        ({"device": "cuda", "modes": ["graph"], "ranks": 8}, "torch sees"),
    ],
)
def test_a_wrong_effort_is_refused(changes, says, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(BenchError, match=says):
        effort(**changes).check()


def test_a_machine_without_gpus_is_told_so_whatever_ranks_follow_from_that(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BenchError, match="device cuda: torch sees no GPU here"):
        effort(device="cuda", ranks=0).check()


@pytest.mark.parametrize(
    "row", [CTRAN_KERNELS, pytest.param(NCCLX, marks=pytest.mark.slow)], ids=lambda row: row.label
)
def test_the_command_writes_rows_that_decide(row, tmp_path, monkeypatch):
    if reason := row.missing():
        pytest.skip(reason)
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "tuning.txt"
    done = CliRunner().invoke(
        app,
        ["tune", "all_reduce", "--device", "host", "--backend", row.name, "--ranks", "2",
         "--mode", "eager", "--dtype", "float32,int32", "--blocks", "8", "--bytes", "1K,8K",
         "--seconds", "0.005", "--output", str(path)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    monkeypatch.setenv("TORCHCOMM_CTRAN_TUNING_FILE", str(path))
    rows = algorithms.measured_kernels()
    assert {each["kind"] for each in rows} == {"float", "integer"}
    assert {(each["gpu"], each["ranks"], each["mode"]) for each in rows} == {
        ("host-memory", (2, 2), "eager")
    }
    shown = CliRunner().invoke(app, ["algorithms"])
    assert "host-memory" in shown.output
    done = CliRunner().invoke(
        app,
        ["tune", "all_gather_single", "--device", "host", "--backend", row.name, "--ranks", "2",
         "--mode", "eager", "--dtype", "float32", "--blocks", "8", "--bytes", "8K",
         "--tensors", "plain,registered", "--within", "4", "--seconds", "0.005", "--dry-run"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    ends = [line.rpartition(" blocks ")[2].partition(" ")[2] for line in done.output.splitlines()
            if line.startswith("kernel all_gather_single")]  # fmt: skip
    assert ends == ["tensors registered within 4", "tensors registered", "within 4", ""]
