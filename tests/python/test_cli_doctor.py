"""`torchcomms doctor` as a program, on this machine and on one with planted faults."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
import torch
import torchcomms
from torchcomms._build_info import TORCH_VERSION

from tests.harness.programs import Finished, together

DOCTOR = [sys.executable, "-m", "torchcomms", "doctor"]
LIMIT_S = 150.0  # the exchange of the doctor's own limit, and twelve imports of torch side by side


def with_limit(limit: str, *arguments: str) -> list[str]:
    """The doctor behind `ulimit`."""
    return ["sh", "-c", f"ulimit {limit} && exec {shlex.join([*DOCTOR, *arguments])}"]


@pytest.fixture(scope="module")
def runs() -> tuple[Finished, Finished]:
    """(as the machine is, with four faults): started together."""
    faults = {
        "TORCHCOMM_GLOO_INTERFACE": "nowhere0",
        "MASTER_ADDR": "nowhere.invalid",
        "TORCHCOMM_TIMEOUT_SECONDS": "soon",
    }
    healthy, faulty = together([([*DOCTOR, "--json"], {}), (with_limit("-n 64"), faults)], LIMIT_S)
    return healthy, faulty


def test_it_proves_every_usable_backend(runs):
    report = json.loads(runs[0].out)
    usable = {row["backend"] for row in report["backends"] if row["usable"] == "yes"}
    assert usable >= {"fake"}
    assert {row["backend"]: row["correct"] for row in report["exchanges"]} == dict.fromkeys(
        usable, True
    )


def test_the_status_says_whether_there_is_a_problem(runs):
    report = json.loads(runs[0].out)
    assert report["ok"] is not any(f["level"] == "problem" for f in report["findings"])
    assert runs[0].code == (0 if report["ok"] else 1)


def test_it_names_versions_libraries_and_backends(runs):
    report = json.loads(runs[0].out)
    versions = {row["what"]: row["value"] for row in report["versions"]}
    assert versions["torch"].startswith(torch.__version__)
    assert versions["torchcomms"].startswith(torchcomms.__version__)
    assert versions["built for torch"] == TORCH_VERSION
    loaded = {row["library"] for row in report["libraries"] if row["state"] == "loaded"}
    assert loaded >= {"torchcomms", "torch (with gloo inside)"}
    assert {row["backend"] for row in report["backends"]} >= {"gloo", "fake", "nccl", "xccl"}
    assert all(row["why not"] for row in report["backends"] if row["usable"] == "no")


@pytest.mark.parametrize(
    "names",
    ["open files: the limit is 64", "the interface nowhere0",
     "nowhere.invalid does not resolve", "TORCHCOMM_TIMEOUT_SECONDS: 'soon' cannot be read"],
)  # fmt: skip
def test_planted_faults_are_named_with_what_to_do(runs, names):
    lines = runs[1].out.splitlines()
    at = next(i for i, line in enumerate(lines) if names in line)
    assert "PROBLEM" in lines[at]
    assert lines[at + 1].startswith("           ")  # what to do


def test_problems_come_first_and_make_the_status_1(runs):
    assert runs[1].code == 1
    findings = runs[1].out.partition("\nFindings\n")[2].splitlines()
    marks = [line.split()[0] for line in findings if line[2:4].strip()]
    assert marks.index("PROBLEM") == 0
    assert "Traceback" not in runs[1].out + runs[1].err
