"""`torchcomms bench`: arguments, outputs, exit statuses."""

from __future__ import annotations

import json
import sys

import pytest
from torchcomms.bench import call_cost
from torchcomms_cli.app import app
from typer.testing import CliRunner, Result

from tests.harness.programs import together


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


FAKE = ("--backend", "fake", "--ranks", "1", "--iterations", "3")


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Result, list[dict[str, object]], bytes]:
    """One run with all outputs: what it printed, its lines, its picture."""
    folder = tmp_path_factory.mktemp("bench")
    lines, picture = folder / "points.jsonl", folder / "points.png"
    done = run(
        "all_reduce", "barrier", "--bytes", "8,1K", "--ranks", "2", "--iterations", "3",
        "--compare", "--json", str(lines), "--plot", str(picture),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return done, [json.loads(line) for line in lines.read_text().splitlines()], picture.read_bytes()


def test_the_table_and_the_comparison_are_printed(measured):
    table, comparison = measured[0].stdout.split("\n\n")
    assert len(table.splitlines()) == 2 + 6
    assert len(comparison.splitlines()) == 2 + 3
    assert "gloo / c10d:gloo" in comparison


def test_lines_are_written(measured):
    assert [(line["op"], line["bytes"], line["backend"]) for line in measured[1]] == [
        ("all_reduce", 8, "gloo"),
        ("all_reduce", 8, "c10d:gloo"),
        ("all_reduce", 1024, "gloo"),
        ("all_reduce", 1024, "c10d:gloo"),
        ("barrier", 0, "gloo"),
        ("barrier", 0, "c10d:gloo"),
    ]


def test_a_picture_is_drawn(measured):
    assert measured[2].startswith(b"\x89PNG")


def test_nothing_but_results_goes_to_stdout_and_no_bar_to_a_pipe(measured):
    assert measured[0].stderr == ""


def test_points_that_cannot_be_written_are_printed_all_the_same():
    done = run("all_reduce", "--bytes", "8", "--json", "/dev/full", *FAKE)
    assert done.exit_code == 2
    assert done.stderr == "torchcomms bench: /dev/full cannot be written: No space left on device\n"
    assert "all_reduce" in done.stdout


def test_lines_go_to_stdout_on_request():
    done = run("all_reduce", "--bytes", "8", "--json", "-", *FAKE)
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["backend"] == "fake"


@pytest.mark.parametrize("value", ["", " "])
def test_a_rank_that_is_empty_is_none(value, monkeypatch):
    monkeypatch.setenv("RANK", value)
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = run("all_reduce", "--bytes", "8", "--json", "-", *FAKE)
    assert done.exit_code == 0, done.output


def test_the_table_can_be_left_out(tmp_path):
    done = run("all_reduce", "--no-table", "--json", str(tmp_path / "points.jsonl"), *FAKE)
    assert (done.exit_code, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("all_reduse",), "unknown operation 'all_reduse'; allowed: all_reduce"),
        (("--backend", "gluu"), "unknown backend 'gluu'; built here:"),
        (("--backend", ""), "no backend was given"),
        (("--backend", ","), "no backend was given"),
        (("--bytes", "8Q"), "'8Q' is not a size; allowed: 8, 1K"),
        (("--mode", "sync,quick"), "unknown mode 'quick'; allowed: sync, async"),
        (("--dtype", "f32"), "unknown dtype 'f32'; allowed: float32"),
        (("--ranks", "0"), "ranks: 0 is not at least 1"),
        (("--seconds", "1e300"), "seconds: 1e+300 is not above 0 and at most 86400"),
        (("--seconds", "nan"), "--seconds: nan is not a finite number"),
        (("--plot", "points.doc"), "must end in one of .png"),
        (("--json", "/dev/null/x.json"), "/dev/null is not a folder"),
        (("--backend", "gloo", "--compare"), "at least two backends"),
        (("overhead", "barrier"), "overhead is measured alone"),
    ],
)
def test_a_bad_request_is_one_sentence_and_status_2(arguments, says):
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("torchcomms bench: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_it_works_under_torchrun():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ours = ["bench", "all_reduce", "--bytes", "8", "--iterations", "2", "--json", "-"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "torchcomms", *ours]
    (finished,) = together([(command, {})], 60.0)
    finished.expect_success()
    lines = [json.loads(line) for line in finished.out.splitlines()]
    assert [(line["backend"], line["ranks"], line["correct"]) for line in lines] == [
        ("gloo", 2, True),
        ("c10d:gloo", 2, True),
    ]


def test_overhead_prints_calls_and_import(monkeypatch):
    from torchcomms.bench import ImportCost

    monkeypatch.setattr("torchcomms.bench.call_cost", lambda: call_cost(blocks=20))
    cost = ImportCost(torch_s=2.0, torch_and_torchcomms_s=2.125, added_s=0.125, pairs=1)
    monkeypatch.setattr("torchcomms.bench.import_cost", lambda: cost)
    text = run("overhead")
    assert text.exit_code == 0, text.output
    assert "all_reduce(tensor, op, False)" in text.stdout
    assert "+0.125 s" in text.stdout
    assert "block of 100 calls" in text.stdout
    lines = [json.loads(line) for line in run("overhead", "--json", "-").stdout.splitlines()]
    assert [line["measure"] for line in lines] == ["call"] * 5 + ["import"]
    assert all("hardware" in line for line in lines)
