"""`torchcomms drill`: arguments, outputs and exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torchcomms.drill
from torchcomms.drill import CELLS, Cell
from torchcomms_cli.app import app
from typer.testing import CliRunner, Result


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["drill", *arguments])


def good(scene):
    scene.works(scene.comm())


def bad(scene):
    if scene.rank == 0:
        scene.find("wrong result", "the planted one")


@pytest.fixture
def planted(monkeypatch):
    """The table has two cells: one in which nothing happens, one with a wrong result."""
    cells = [
        Cell("T01", "nothing", "nothing", good, ranks=2),
        Cell("T02/bad", "a wrong result", "nothing", bad, ranks=2, bystander=False),
        Cell("T03", "a documented one", "-", bad, ranks=2, bystander=False, known={"ctran": "so"}),
    ]
    monkeypatch.setattr(torchcomms.drill, "CELLS", cells)


def test_the_list_has_every_cell():
    done = run("--list")
    assert done.exit_code == 0
    listed = {line.split()[0] for line in done.stdout.splitlines()[2:]}
    assert listed == {cell.id for cell in CELLS}


def test_a_failure_of_ours_is_exit_status_1(planted, tmp_path):
    path, page = tmp_path / "results.json", tmp_path / "results.md"
    done = run("--backend", "ctran", "--cells", "T01,T02", "--slack", "4", "--json", str(path),
               "--markdown", str(page), "--seed", "7")  # fmt: skip
    assert done.exit_code == 1, done.output
    rows = [line.split()[:4] for line in done.stdout.splitlines()[2:4]]
    assert rows == [["T01", "ctran", "pass", "-"], ["T02/bad", "ctran", "wrong", "result"]]
    assert "seed 7; ctran: 1 pass, 1 wrong result" in done.stdout
    results = json.loads(path.read_text())["results"]
    assert [(r["cell"], r["verdict"], r["seed"]) for r in results] == [
        ("T01", "pass", 7),
        ("T02/bad", "wrong result", 7),
    ]
    assert "the planted one" in page.read_text()


def test_without_one_it_is_0(planted):
    done = run("--backend", "ctran", "--cells", "T01,T03", "--slack", "4", "--json", "-")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)["results"]
    assert [r["verdict"] for r in results] == ["pass", "wrong result"]
    assert results[1]["known"] is True


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--cells", "F99"), "unknown cell 'F99'; allowed: F01, F02"),
        (("F01/idle", "F99"), "unknown cell 'F99'; allowed: F01, F02"),
        (("F17/none",), "unknown cell 'F17/none'; allowed: F17/"),
        (("--backend", "mpi"), "unknown backend 'mpi'"),
        (("--backend", "nccl"), "TORCHCOMM_NCCL_LIBRARY"),
        (("--jobs", "0"), "jobs: 0"),
        (("--json", "/dev/null/x.json"), "/dev/null is not a folder"),
    ],
)
def test_a_request_that_makes_no_sense_is_2(arguments, text):
    done = run(*arguments)
    assert done.exit_code == 2
    assert text in done.output


@pytest.mark.serial
def test_the_program_itself(tmp_path):
    """A script without a guard around its main part must not run again in every rank."""
    script = tmp_path / "script.py"
    script.write_text("from torchcomms_cli import main\n\nmain()\n")
    done = subprocess.run(
        [sys.executable, str(script), "drill", "--backend", "ctran", "--cells", "F40/small",
         "--slack", "4", "--json", "-"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [r["verdict"] for r in json.loads(done.stdout)["results"]] == ["pass"]
