"""`torchcomms.algorithms` and `torchcomms algorithms`: the catalogue, costs, and what is taken."""

from __future__ import annotations

import json
import sys

import pytest
import torchcomms
from torchcomms import algorithms
from torchcomms_cli.app import app
from typer.testing import CliRunner, Result


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["algorithms", *arguments])


def test_every_algorithm_says_what_it_does_and_where_it_is_from():
    rows = algorithms.catalogue()
    assert {row["operation"] for row in rows} >= {"all_reduce", "all_to_all", "barrier"}
    for row in rows:
        assert min(len(row["summary"]), len(row["source"])) > 10, row
        assert (row["addition"] == "none") == (row["order"] == ""), row


def test_costs_are_the_formulas():
    """A ring sends 2 (n - 1) / n of the vector in 2 (n - 1) messages."""
    (ring,) = [c for c in algorithms.costs("all_reduce", 4, 4096) if c["name"] == "ring"]
    assert (ring["steps"], ring["messages"]) == (6, 6)
    assert (ring["sent_bytes"], ring["reduced_bytes"]) == (6144, 3072)


def test_what_is_taken_is_the_cheapest_by_the_model():
    for size in (8, 1 << 16, 1 << 24):
        costs = algorithms.costs("all_reduce", 4, size, tuning="")
        taken = algorithms.chosen("all_reduce", 4, size, tuning="")
        cheapest = min(cost["estimate_us"] for cost in costs if not cost["why_not"])
        assert taken["why"] == "cost model"
        assert taken["estimate_us"] * 0.95 <= cheapest


def test_the_kernels_of_ncclx_have_a_row_for_each_collective_they_run():
    if not torchcomms.is_backend_built("ncclx"):
        assert algorithms.kernels() == []
        pytest.skip("backend ncclx is not part of this build")
    rows = algorithms.kernels()
    assert {row["operation"] for row in rows} >= {"all_reduce", "all_gather_single", "barrier"}
    assert all(row["bytes_most"] is None or row["bytes_most"] >= 1 << 20 for row in rows)
    assert json.loads(run("--json").stdout)["kernels"] == rows
    assert "by kernels over NVLink" in run().stdout


def test_a_module_of_ncclx_that_does_not_load_is_named_with_the_reason(monkeypatch):
    if not torchcomms.is_backend_built("ncclx"):
        pytest.skip("backend ncclx is not part of this build")
    monkeypatch.setitem(sys.modules, "torchcomms._comms_ncclx", None)
    says = "failed to load backend 'ncclx' from torchcomms._comms_ncclx: "
    with pytest.raises(torchcomms.BackendUnavailable, match=says):
        algorithms.kernels()
    done = run()
    assert done.exit_code == 2
    assert says in done.stderr


def test_what_cannot_be_done_says_why():
    rows = {c["name"]: c for c in algorithms.costs("all_reduce", 4, 96, local_size=3)}
    assert "same number of ranks on each host" in rows["two_level"]["why_not"]
    assert "steps" not in rows["two_level"]


def test_a_tuning_decides():
    tuning = (
        "torchcomms tuning 1\n"
        "use all_reduce wire shm ranks 4..4 bytes 0..99 algorithm ring chunk_bytes 0\n"
    )
    taken = algorithms.chosen("all_reduce", 4, 96, tuning=tuning)
    assert (taken["algorithm"], taken["why"]) == ("ring", "tuning file")
    assert algorithms.chosen("all_reduce", 4, 100, tuning=tuning)["why"] == "cost model"
    assert algorithms.chosen("all_reduce", 4, 96, wire="tcp", tuning=tuning)["why"] == "cost model"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: algorithms.catalogue("all_redduce"), "all_reduce, "),
        (lambda: algorithms.costs("all_redduce", 2, 8), "unknown operation 'all_redduce'"),
        (lambda: algorithms.costs("all_reduce", 0, 8), "size 0"),
        (lambda: algorithms.costs("all_reduce", 2, -8), "negative"),
        (lambda: algorithms.chosen("all_reduce", 2, 8, wire="ib"), "allowed are self, shm and tcp"),
        (lambda: algorithms.chosen("all_reduce", 2, 8, element_bytes=0), "element_bytes is 0"),
        (lambda: algorithms.chosen("all_reduce", 2, 8, tuning="tuning 2"), "tuning, line 1, word"),
    ],
)
def test_a_wrong_question_is_an_invalid_argument(call, says):
    with pytest.raises(torchcomms.InvalidArgument, match=says):
        call()


def test_the_command_lists_all(monkeypatch):
    done = run()
    assert done.exit_code == 0, done.output
    table = done.stdout.split("\n\n")[0]
    assert len(table.splitlines()) == 2 + len(algorithms.catalogue())


def test_the_command_marks_what_is_taken():
    done = run("--operation", "all_reduce", "--ranks", "4", "--bytes", "8,16M")
    assert done.exit_code == 0, done.output
    starred = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("*")]
    want = [algorithms.chosen("all_reduce", 4, size)["algorithm"] for size in (8, 1 << 24)]
    assert starred == want
    assert "Patarasuk" in done.stdout


def test_the_command_says_where_there_is_no_choice():
    done = run("--operation", "send", "--bytes", "8")
    assert done.exit_code == 0, done.output
    assert "8 bytes (the only one)" in done.stdout


def test_the_command_prints_json():
    done = run("--operation", "broadcast", "--bytes", "1K", "--json")
    (point,) = json.loads(done.stdout)["costs"]
    assert point["bytes"] == 1024
    assert {cost["name"] for cost in point["costs"]} > {"direct", "tree"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--operation", "all_redduce"), "'all_redduce'"),
        (("--operation", "barrier", "--wire", "ib"), "wire is 'ib'"),
        (("--operation", "barrier", "--bytes", "8Q"), "'8Q' is not a size"),
        (("--operation", "all_reduce", "--bytes", 20 * "9"), "is over 1024G"),
        (("--bytes", "8", "--ranks", "4"), "--ranks, --bytes: only for the costs"),
    ],
)
def test_a_wrong_argument_is_one_sentence(arguments, says):
    done = run(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--ranks", "--local-size", "--cores"])
def test_there_is_a_most_of_everything(option):
    for wrong in ("0", "1000001", 20 * "9"):
        done = run("--operation", "all_reduce", option, wrong)
        assert done.exit_code == 2
        assert option in done.stderr
    assert run("--operation", "all_reduce", option, "1000000").exit_code == 0


def test_a_damaged_tuning_file_is_named_by_its_path(monkeypatch, tmp_path):
    path = tmp_path / "damaged.txt"
    path.write_text("no tuning\n")
    monkeypatch.setenv("TORCHCOMM_CTRAN_TUNING_FILE", str(path))
    for ask in (lambda: algorithms.chosen("all_reduce", 2, 8), algorithms.measured_kernels):
        with pytest.raises(torchcomms.InvalidArgument, match=f"{path}.* line 1"):
            ask()


def test_a_named_tuning_file_that_is_missing_says_what_named_it(monkeypatch, tmp_path):
    path = tmp_path / "none.txt"
    monkeypatch.setenv("TORCHCOMM_CTRAN_TUNING_FILE", str(path))
    with pytest.raises(torchcomms.InvalidArgument) as raised:
        algorithms.chosen("all_reduce", 2, 8)
    assert str(raised.value).startswith("TORCHCOMM_CTRAN_TUNING_FILE: the tuning file ")
    assert f"{path} cannot be read: No such file" in str(raised.value)
    assert "/dev/null" in str(raised.value)
    done = run()
    assert done.exit_code == 2
    assert str(path) in done.stderr
