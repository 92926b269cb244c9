"""`torchcomms soak`: arguments, outputs and exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torchcomms.soak
from torchcomms.soak import Failure, Outcome
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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--backend", "mpi"), "unknown backend 'mpi'; built here: ctran"),
        (("--backend", "fake"), "backend fake moves no data"),
        (("--ranks", "0"), "--ranks: 0 is not at least 1"),
        (("--bytes", "8Q"), "'8Q' is not a size"),
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
