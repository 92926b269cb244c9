"""`torchcomms soak`: arguments, outputs and exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torchcomms.soak
from torchcomms.soak import Failure, Outcome, Request
from torchcomms_cli.app import app
from typer.testing import CliRunner, Result

SMALL = ("--bytes", "4K", "--steps", "20")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["soak", *arguments])


def test_a_good_soak_prints_its_seed_and_what_it_did(tmp_path):
    path = tmp_path / "soak.json"
    done = run("--backend", "ctran", "--seed", "9", *SMALL, "--json", str(path))
    assert done.exit_code == 0, done.output
    assert done.stderr == "seed 9\n"
    assert "20 steps from 0 on 2 ranks of ctran on cpu in " in done.stdout
    assert "all_reduce" in done.stdout
    report = json.loads(path.read_text())
    assert report["ok"] is True
    assert report["failure"] is None
    assert (report["seed"], report["steps"], report["ranks"]) == (9, 20, 2)
    assert report["operations"]["all_reduce"].keys() == {"calls", "bytes"}
    assert report["steps_per_s"] > 0


def test_a_report_on_stdout_stands_there_alone():
    done = run("--backend", "gloo", "--seed", "9", *SMALL, "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["backend"] == "gloo"


def test_a_failure_is_told_and_is_exit_status_1(monkeypatch):
    failure = Failure("wrong value", 7, 1, "tensor: element 3 is 4, expected 5", ranks={0: "x"})

    def fails(request, progress):
        progress("step 7")
        return Outcome(request=request, steps=7, failure=failure)

    monkeypatch.setattr(torchcomms.soak, "soak", fails)
    done = run("--backend", "ctran", "--seed", "9", "--hint", "a::b=c d", "--json", "-")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert report["failure"]["text"] == failure.text
    assert "wrong value at step 7 on rank 1, seed 9" in done.stderr
    again = report["failure"]["again"]
    assert "--seed 9 --from-step 7 --steps 1" in again
    assert again.endswith("--hint 'a::b=c d'")
    assert again in done.stderr
    assert "--from-step 0 --steps 8" in done.stderr


@pytest.mark.parametrize("failure", [None, Failure("wrong value", 7, 1, "element 3 is 4")])
def test_a_report_that_cannot_be_written_hides_nothing(failure, monkeypatch):
    outcome = Outcome(
        request=Request(backend="ctran", device="cpu", ranks=2, seed=9), steps=7, failure=failure
    )
    monkeypatch.setattr(torchcomms.soak, "soak", lambda request, progress: outcome)
    done = run("--backend", "ctran", "--seed", "9", "--json", "/dev/full")
    assert done.exit_code == 2
    assert "torchcomms soak: /dev/full cannot be written: No space left" in done.stderr
    told = done.stdout if failure is None else done.stderr
    assert ("7 steps from 0" if failure is None else "element 3 is 4") in told


def test_without_a_seed_there_is_a_new_one(monkeypatch):
    monkeypatch.setattr(torchcomms.soak, "soak", lambda request, progress: Outcome(request=request))
    seeds = {run("--json", "-").stderr for _ in range(3)}
    assert len(seeds) > 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--backend", "mpi"), "unknown backend 'mpi'; built here: ctran"),
        (("--backend", "fake"), "backend fake moves no data"),
        (("--device", "tpu"), "unknown device 'tpu'; allowed: cpu, cuda"),
        (("--device", "cuda", "--ranks", "99"), "--ranks: 99 on cuda need"),
        (("--ranks", "0"), "--ranks: 0 is not at least 1"),
        (("--ranks", "100000000"), "--ranks: 100000000 is above 1024"),
        (("--limit", "1e10"), "--limit: 1e+10 is not above 0 and at most 86400"),
        (("--minutes", "0"), "--minutes: 0 is not above 0"),
        (("--steps", str(10**23)), "is above 1000000000000000"),
        (("--from-step", str(10**23)), "is above 1000000000000000"),
        (("--steps", "0"), "--steps: 0 is not at least 1"),
        (("--from-step", "-1"), "--from-step: -1 is not at least 0"),
        (("--limit", "-2"), "--limit: -2 is not above 0"),
        (("--bytes", "8Q"), "'8Q' is not a size"),
        (("--bytes", "8"), "--bytes: 8 is not at least 16"),
        (("--hint", "transport"), "'transport' is not NAME=VALUE"),
        (("--json", "/dev/null/x.json"), "/dev/null is not a folder"),
    ],
)
def test_a_request_that_makes_no_sense_is_one_sentence_and_status_2(arguments, text):
    done = run(*arguments)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("torchcomms soak: ")
    assert text in line


def test_what_the_backend_refuses_is_status_2_too():
    """A hint that the library itself finds wrong, on all ranks."""
    done = run("--backend", "ctran", *SMALL, "--seed", "1", "--hint", "ctran::transport=pigeon")
    assert done.exit_code == 2, done.output
    assert "InvalidArgument: " in done.stderr
    assert "pigeon" in done.stderr


@pytest.mark.serial
def test_the_program_itself(tmp_path):
    """A script without a guard around its main part must not run again in every rank."""
    script = tmp_path / "script.py"
    script.write_text("from torchcomms_cli import main\n\nmain()\n")
    done = subprocess.run(
        [sys.executable, str(script), "soak", "--backend", "ctran", *SMALL, "--json", "-"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
