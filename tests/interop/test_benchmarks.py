"""The benchmarks of training run, check what they compute, and write what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torchcomms

from tests.harness.programs import torchrun

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "ddp_step.py"


@pytest.mark.slow
def test_it_writes_a_line_a_side_and_the_losses_agree(tmp_path: Path) -> None:
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    out = tmp_path / "lines"
    finished = torchrun(PROGRAM, 2, "--seconds", "0.1", "--out", str(out)).expect_success()
    assert finished.out.count("(losses agree; ") == 2
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["config"], line["backend"]) for line in lines] == [
        (config, side) for config in ("communication", "compute") for side in ("ctran", "gloo")
    ]
    for line in lines:
        assert line["losses_agree"] is True
        assert line["ratio"] > 0
        assert line["step_ms_min"] <= line["step_ms_p50"] <= line["step_ms_max"]
        assert 900_000 < line["parameters"] < 1_100_000


@pytest.mark.slow
def test_it_says_what_processor_time_busy_processes_beside_it_got(tmp_path: Path) -> None:
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    out = tmp_path / "lines"
    options = ("--seconds", "0.5", "--beside", "2", "--config", "communication")
    finished = torchrun(PROGRAM, 2, *options, "--out", str(out)).expect_success()
    assert finished.out.count("the busy processes ") == 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["config"] for line in lines] == ["communication"] * 2
    for line in lines:
        assert line["busy_processes"] == 2
        assert line["cores_used_by_busy_processes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("overlap.py", ("--bytes", "64K", "--rounds", "3")),
        ("window_memory.py", ("--bytes", "64K", "--seconds", "0.05")),
    ],
)
def test_the_others_check_values_and_write_lines(
    program: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    if not torchcomms.is_backend_built("ctran"):
        pytest.skip("needs backend ctran")
    out = tmp_path / "lines"
    torchrun(PROGRAM.parent / program, 2, *arguments, "--json", str(out)).expect_success()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines
    assert all(line["ranks"] == 2 for line in lines)


def test_measurements_become_tables(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    row = {"op": "all_reduce", "ranks": 2, "bytes": 1 << 20, "memory": "window"}
    lines.write_text(
        "\n".join(
            json.dumps({**row, "backend": backend, "p50_us": p50})
            for backend, p50 in (("ctran", 100.0), ("other", 250.0))
        )
    )
    program = PROGRAM.parent / "tables.py"
    table = subprocess.run(
        [sys.executable, program, lines, "--theirs", "other"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "2 ranks, window memory:" in table
    assert "| all_reduce | 100 / 250 (2.50x) |" in table
    wrong = subprocess.run(
        [sys.executable, program, lines, "--theirs", "nobody"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 2
    assert "no lines of ['nobody']; there are those of ['ctran', 'other']" in wrong.stderr
