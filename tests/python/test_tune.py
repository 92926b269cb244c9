"""`torchcomms tune`: what won becomes the file, and the file decides."""

from __future__ import annotations

import pytest
import torchcomms
from torchcomms import algorithms
from torchcomms.bench import BenchError
from torchcomms.bench.tune import Effort, Timing, constants, merged, overrides
from torchcomms.doctor import environment
from torchcomms_cli.app import app
from typer.testing import CliRunner

EFFORT = Effort(["all_reduce"], ranks=4, sizes=[8, 1024, 65536])
WIDE = Effort(["all_reduce"], ranks=4, sizes=[8, 1024, 65536, 1 << 20])


def timings(took_us, effort=EFFORT) -> list[Timing]:
    """What `took_us(cost)` says, for every algorithm at every size."""
    return [
        Timing("all_reduce", size, cost, took_us(cost))
        for size in effort.sizes
        for cost in effort.cost("all_reduce", size)
        if not cost["why_not"]
    ]


def by_name(winners):
    """Times in which winners[size] is the fastest."""
    made = []
    for timing in timings(lambda cost: 10.0):
        took = 1.0 if timing.cost["name"] == winners[timing.size] else 10.0
        made.append(Timing(timing.operation, timing.size, timing.cost, took))
    return made


def test_ranges_of_sizes_follow_the_winners():
    lines = overrides(EFFORT, by_name({8: "ring", 1024: "ring", 65536: "halving"}))
    assert lines == [
        "use all_reduce wire shm ranks 4..4 bytes 0..65535 algorithm ring chunk_bytes 0",
        "use all_reduce wire shm ranks 4..4 bytes 65536..262143 algorithm halving chunk_bytes 0",
    ]


@pytest.mark.parametrize(
    ("sizes", "covers"),
    [
        ([8], "0..31"),
        ([8, 4096], "0..16383"),
        ([65536], "65536..262143"),
        ([8, 1 << 20], f"0..{1 << 62}"),
        ([1 << 24], f"{1 << 24}..{1 << 62}"),
    ],
)
def test_sizes_far_from_those_measured_are_left_to_the_model(sizes, covers):
    effort = Effort(["all_reduce"], ranks=4, sizes=sizes)
    made = timings(lambda cost: 1.0 if cost["name"] == "ring" else 10.0, effort)
    (line,) = overrides(effort, made)
    assert f" bytes {covers} algorithm ring " in line


def test_a_small_gain_changes_nothing():
    """At the second size another algorithm is 5 % faster, at the third one 50 %."""
    made = []
    for timing in timings(lambda cost: 10.0):
        name, size = timing.cost["name"], timing.size
        took = {("ring", 8): 5.0, ("halving", 1024): 9.5, ("halving", 65536): 5.0}
        made.append(Timing("all_reduce", size, timing.cost, took.get((name, size), 10.0)))
    algorithms_taken = [line.split(" algorithm ")[1].split()[0] for line in overrides(EFFORT, made)]
    assert algorithms_taken == ["ring", "halving"]


def test_the_fitted_constants_are_those_that_the_times_were_made_of():
    made = timings(
        lambda c: (
            (
                300 * c["steps"]
                + 2 * 100 * c["messages"]
                + 2 * 0.05 * max(c["sent_bytes"], c["received_bytes"])
                + 2 * 0.01 * c["reduced_bytes"]
            )
            / 1000
        ),
        WIDE,
    )
    words = constants(WIDE, made, cores=2).split()
    assert words[:3] == ["wire", "shm", "crowded"]
    fitted = [float(word) for word in words[4::2]]
    assert fitted == pytest.approx([300, 100, 50, 10], rel=1e-3)


def test_a_constant_is_never_negative_and_little_data_gives_none():
    made = timings(lambda c: 1.0 / c["steps"], WIDE)
    assert min(float(word) for word in constants(WIDE, made, 4).split()[4::2]) >= 0
    assert constants(WIDE, made[:3], 4) is None


@pytest.mark.parametrize(
    ("operation", "ranks", "sizes"),
    [
        ("all_reduce", 4, [8]),
        ("all_reduce", 4, [8, 1024, 65536]),
        ("all_reduce", 4, [1 << 16, 1 << 20, 1 << 24]),
        ("all_reduce", 2, WIDE.sizes),  # as many messages as steps
        ("all_gather", 4, WIDE.sizes),  # says nothing of reducing
    ],
)
def test_what_cannot_tell_the_constants_apart_gives_none(operation, ranks, sizes):
    effort = Effort([operation], ranks, sizes)
    made = [
        Timing(operation, size, cost, 10.0 + cost["steps"] + size / 1000)
        for _ in range(8)
        for size in sizes
        for cost in effort.cost(operation, size)
    ]
    assert constants(effort, made, cores=4) is None


def test_other_lines_of_the_file_stay():
    old = (
        "torchcomms tuning 1\n"
        "use all_reduce wire shm ranks 4..4 bytes 0..9 algorithm chain chunk_bytes 0\n"
        "use all_reduce wire shm ranks 2..2 bytes 0..9 algorithm chain chunk_bytes 0\n"
        "use all_reduce wire tcp ranks 4..4 bytes 0..9 algorithm chain chunk_bytes 0\n"
        "wire tcp apart step_ns 1 message_ns 2 byte_ps 3 reduce_ps 4\n"
    )
    new = "use all_reduce wire shm ranks 4..4 bytes 0..9 algorithm ring chunk_bytes 0"
    line = "wire shm apart step_ns 5 message_ns 6 byte_ps 7 reduce_ps 8"
    text = merged(old, EFFORT, line, [new])
    assert text.count("chain") == 2
    assert new in text
    assert line in text
    assert "wire tcp apart step_ns 1 message_ns 2 byte_ps 3 reduce_ps 4" in text
    assert merged(text, EFFORT, line, [new]) == text


def test_a_file_that_is_none_is_refused_before_measuring(tmp_path):
    path = tmp_path / "tuning.txt"
    path.write_text("nonsense\n")
    done = CliRunner().invoke(app, ["tune", "--output", str(path)])
    assert done.exit_code == 2
    assert f"{path}, line 1, word: 'nonsense'; allowed: torchcomms" in done.stderr
    assert path.read_text() == "nonsense\n"


@pytest.mark.skipif(not torchcomms.is_backend_built("ctran"), reason="needs backend ctran")
def test_a_comment_that_is_no_utf8_is_one_all_the_same(tmp_path, monkeypatch):
    path = tmp_path / "tuning.txt"
    path.write_bytes(b"torchcomms tuning 1\n# \xfc\n")
    monkeypatch.setenv("TORCHCOMM_CTRAN_TUNING_FILE", str(path))
    assert algorithms.measured_kernels() == []
    assert algorithms.chosen("broadcast", 2, 4096)["why"] == "cost model"
    assert environment.look().findings[-1].level == "ok"
    done = CliRunner().invoke(
        app, ["tune", "broadcast", "--bytes", "8", "--seconds", "0.001", "--dry-run"]
    )
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("effort", "says"),
    [
        (Effort(["barrier"], 2, [8]), "unknown operation 'barrier'; allowed: all_reduce"),
        (Effort(["reduce", "reduce"], 2, [8]), "an operation is given twice in reduce, reduce"),
        (Effort(["reduce"], 2, [8], seconds=0.0), "seconds: 0.0 is not above 0"),
        (Effort(["reduce"], 2, [8], seconds=1e300), "seconds: 1e[+]300 is not above 0"),
        (Effort(["reduce"], 1, [8]), "ranks: 1 is not at least 2"),
        (Effort(["reduce"], 2, [8], wire="ib"), "unknown wire 'ib'; allowed: shm, tcp"),
    ],
)
def test_a_wrong_effort_is_refused(effort, says):
    with pytest.raises(BenchError, match=says):
        effort.check()


def test_no_seconds_are_not_the_usual_ones():
    done = CliRunner().invoke(app, ["tune", "--seconds", "0", "--dry-run"])
    assert done.exit_code == 2
    assert "seconds: 0.0 is not above 0" in done.stderr


@pytest.mark.skipif(not torchcomms.is_backend_built("ctran"), reason="needs backend ctran")
def test_the_command_writes_a_file_that_decides(tmp_path, monkeypatch):
    path = tmp_path / "below" / "tuning.txt"
    monkeypatch.setenv("TORCHCOMM_CTRAN_TUNING_FILE", str(path))
    done = CliRunner().invoke(
        app, ["tune", "broadcast", "--bytes", "8,4K", "--seconds", "0.01", "--output", str(path)]
    )
    assert done.exit_code == 0, done.output
    assert algorithms.tuning_path() == str(path)
    taken = algorithms.chosen("broadcast", 2, 4096)
    assert taken["why"] == "tuning file"
    assert f"algorithm {taken['algorithm']} " in path.read_text()
