"""`python -m benchmarks.gpu`: what it judges, and that it runs, on a library for host memory."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
import torch.distributed as dist
from torchcomms import bench

from benchmarks.gpu import claims
from tests.harness.backends import NCCL
from tests.harness.programs import together

SUITE = [sys.executable, "-m", "benchmarks.gpu"]


@pytest.mark.parametrize(
    ("measured", "verdict"), [(1.0, "PASS"), (2.0, "PASS"), (2.01, "miss"), (None, "not here")]
)
def test_a_line_passes_up_to_its_limit(measured, verdict):
    claim = claims.Claim("what", "us", measured, 2.0)
    assert claim.verdict == verdict
    assert claim.as_dict()["verdict"] == verdict
    assert claims.markdown([claim]).splitlines()[2].endswith(f"| {verdict} |")


def test_a_ratio_needs_both_sides():
    assert claims.ratio("x", (None, 1.0), "us", 1.0).measured is None
    assert claims.ratio("x", (1.0, None), "us", 1.0).measured is None
    half = claims.ratio("x", (1.0, 2.0), "us", 1.0)
    assert (half.measured, half.of) == (0.5, "1.00 / 2.00 us")


def test_lines_are_of_the_points_they_name():
    plan = bench.Plan(["all_reduce"], ["fake"], [1024], iterations=1)
    (some,) = bench.run_here(plan, bench.World(0, 1, dist.HashStore()))
    times = {
        ("eager", "nccl"): 9.0, ("eager", "c10d:nccl"): 18.0, ("eager", "raw:nccl"): 8.0,
        ("graph", "nccl"): 4.0, ("graph", "c10d:nccl"): 5.0, ("graph", "raw:nccl"): 3.0,
        ("graph", "nccl@:enable_cuda_graph_support=false"): 3.5,
    }  # fmt: skip
    points = claims.Points(
        dataclasses.replace(some, mode=mode, backend=backend, p50_us=value)
        for (mode, backend), value in times.items()
    )
    host = {"nccl": 6.0, "raw:nccl": 5.0, "raw:nccl from C++": 4.0}
    lines = claims.of_calls(points, host, 1024, "c10d:nccl")
    assert [(line.measured, line.verdict) for line in lines] == [
        (9.0, "PASS"), (0.5, "PASS"), (1.0, "PASS"), (2.0, "miss"), (pytest.approx(4 / 3), "miss"),
        (0.5, "PASS"),
    ]  # fmt: skip


def test_memory_of_a_split_is_held_against_torchs():
    def started(ours: float) -> dict[str, dict[str, float]]:
        times = ("new_made_ms", "new_ready_ms", "split_made_ms", "split_ready_ms")
        common = dict.fromkeys(times, 1.0)
        return {"nccl": {**common, "split_mib": ours}, "c10d:nccl": {**common, "split_mib": 10.0}}

    def memory(ours: float) -> claims.Claim:
        return list(claims.of_start(started(ours), "c10d:nccl"))[-1]

    assert [memory(mib).verdict for mib in (0.0, 12.0, 12.5)] == ["PASS", "PASS", "miss"]


@pytest.mark.slow
def test_the_whole_suite_runs_and_writes_every_line(tmp_path):
    if NCCL.missing():
        pytest.skip(NCCL.missing())
    lines, table = tmp_path / "gpu.jsonl", tmp_path / "gpu.md"
    few = ["--device", "cpu", "--ranks", "2", "--bytes", "4K", "--seconds", "0.001"]
    few += ["--rounds", "2", "--starts", "1", "--json", str(lines), "--markdown", str(table)]
    (finished,) = together([([*SUITE, *few], NCCL.environment)], 120.0)
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    points = [row for row in rows if "measure" not in row]
    judged = [row for row in rows if row.get("measure") == "claim"]
    assert len(points) == 3 + 5 * 2
    assert all(row["correct"] for row in points)
    assert len(judged) == 6 + 2 * 5 + 5
    assert table.read_text() in finished.out
    missed = any(row["verdict"] == "miss" for row in judged)
    assert finished.code == int(missed), finished.err
    here = [row["what"] for row in judged if row["verdict"] == "not here"]
    assert all("graph" in what or "memory" in what for what in here)
    assert len(here) == 2 + 5 + 1
    (host,) = (row for row in rows if row.get("measure") == "enqueue_us")
    assert host.keys() >= {"nccl", "c10d:gloo", "raw:nccl", "raw:nccl from C++"}


def test_without_a_gpu_it_says_so():
    (finished,) = together([(SUITE, {"CUDA_VISIBLE_DEVICES": ""})], 60.0)
    assert finished.code == 2
    assert "no CUDA device" in finished.err
