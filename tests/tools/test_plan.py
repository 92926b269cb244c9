"""What a long command of `./dev` says of the time that is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from devtool import plan

PARTS = {"build": 250, "run": 20}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "STATE", tmp_path)
    return tmp_path


def run():
    made = plan.Plan("demo", PARTS, "a first run elsewhere")
    for title in PARTS:
        with made.part(title):
            pass


def test_the_first_run_has_the_times_of_another_machine(capsys):
    run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("demo, part 1 of 2, build: 4:30 left, as in a first run elsewhere")
    assert lines[1].endswith("demo, part 2 of 2, run: 0:20 left, as in a first run elsewhere")


def test_the_next_run_has_those_of_the_first(capsys):
    run()
    capsys.readouterr()
    run()
    assert "build: 0:00 left, as in the last run here" in capsys.readouterr().out


def test_a_run_that_fails_leaves_no_times(state):
    made = plan.Plan("demo", PARTS, "a first run elsewhere")
    with made.part("build"):
        pass
    with pytest.raises(RuntimeError), made.part("run"):
        raise RuntimeError
    assert not list(state.iterdir())


@pytest.mark.parametrize("text", ["no JSON", json.dumps({"other": 1.0})])
def test_times_of_other_parts_are_not_used(state, capsys, text):
    (state / "demo.json").write_text(text)
    run()
    assert "4:30 left" in capsys.readouterr().out
