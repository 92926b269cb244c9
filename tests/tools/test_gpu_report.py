"""`tools/gpu_report`, without GPUs: times, what is left behind, and what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "gpu_report"
_loader = SourceFileLoader("gpu_report", str(SCRIPT))
gpu_report = module_from_spec(spec_from_loader("gpu_report", _loader))
sys.modules["gpu_report"] = gpu_report  # dataclasses look their module up
_loader.exec_module(gpu_report)
Part = gpu_report.Part


def program(name: str, code: str) -> Part:
    return Part(name, (sys.executable, "-c", code), 1.0)


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_part_over_its_time_ends_with_what_it_started(tmp_path):
    # A child in a session of its own, as torchrun's ranks are, that does not want to go.
    child = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
    code = (
        "import os, signal, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "print('started', flush=True)\n"
        "signal.pause()"
    )
    log = tmp_path / "late.log"
    for limit_s in (2.0, 8.0, 60.0):  # until a slow machine had time to start the child
        assert gpu_report.run(program("late", code), tmp_path, limit_s) == gpu_report.LATE
        if log.read_text():
            break
    assert log.read_text(), "the child was there"
    assert gpu_report.marked(f"{os.getpid()}-late") == []


def test_a_failed_part_is_on_the_page_and_later_parts_run(tmp_path, capsys):
    bad = program("bad", "raise SystemExit('FAILED test_x.py::test_y - why it failed')")
    missing = Part("missing", (str(tmp_path / "nothing"),), 1.0)
    (tmp_path / "benchmarks.md").write_text("| all_reduce of 4K |\n")
    wanted = [bad, missing, program("good", "print('3 passed')"), Part("none", ("true",), 0.0)]
    assert gpu_report.report(wanted, tmp_path, budget_s=600) == 1
    assert capsys.readouterr().out == f"{tmp_path / 'report.md'}\n"
    text = (tmp_path / "report.md").read_text()
    rows = ("| bad | failed |", "| missing | not there |", "| none | not reached |")
    assert all(row in text for row in rows)
    assert "why it failed" in text
    assert "| 3 passed |" in text
    assert "all_reduce of 4K" in text


def test_every_backend_has_its_suites_and_a_name_may_be_a_pattern():
    names = called("--list").stdout.split()
    for backend in ("ctran", "ncclx", "nccl", "nccl-lazy"):
        assert {f"suites-{backend}", f"spec-{backend}"} <= {*names}
    listed = called("--list", "--parts", "soak*,spec-*", "--soak-minutes", "1").stdout.split()
    assert {name.partition("-")[0] for name in listed} == {"spec", "soak"}
    assert called("--parts", "nothing").returncode == 2


def test_without_a_gpu_it_says_so():
    done = called()
    assert done.returncode == 2
    assert "no GPU" in done.stderr
