"""The benchmarks of training run, check what they compute, and write what they measured."""

from __future__ import annotations

import json
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
