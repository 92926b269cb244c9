"""The benchmark harness: what it accepts, what it measures, and that it sees wrong values."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist
import torchcomms
from torchcomms import bench
from torchcomms.bench.exchange import Case
from torchcomms.bench.launch import launch
from torchcomms.bench.plan import parse_backend

SIZES = (8, 4096)
ONLY_OURS = {"all_gather_v", "reduce_scatter_v", "gather_single"}


def alone() -> bench.World:
    return bench.World(0, 1, dist.HashStore())


def control_threads() -> set[str]:
    """The numbers of those of all gloo groups of this process."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().strip() == "pt_gloo_runloop":
                found.add(task.name)
    return found


def test_a_world_that_was_left_has_no_thread_that_may_ask_for_pythons_lock_at_exit():
    before, store = control_threads(), dist.HashStore()

    def be(rank: int) -> set[str]:
        with bench.World(rank, 2, store) as world:
            world.align()
            return control_threads() - before

    with ThreadPoolExecutor(2) as ranks:
        of_worlds = list(ranks.map(be, range(2)))
    assert all(of_worlds)
    assert control_threads().isdisjoint(set.union(*of_worlds))


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("8", [8]),
        ("1K", [1024]),
        ("2m", [2 << 20]),
        ("1KiB", [1024]),
        ("1K:8K", [1024, 2048, 4096, 8192]),
        ("1K:64K:8", [1024, 8192, 65536]),
        ("1K:5K", [1024, 2048, 4096]),
        ("64K, 8,1K:2K", [8, 1024, 2048, 65536]),
        ("8,8", [8]),
    ],
)
def test_sizes_are_read(text, want):
    assert bench.parse_sizes(text) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a size"),
        ("0", "'0' is not a size"),
        ("1T", "'1T' is not a size"),
        ("-8", "'-8' is not a size"),
        ("1K:", "'' is not a size"),
        ("1K:2K:1", "factor in '1K:2K:1'"),
        ("1K:2K:x", "factor in '1K:2K:x'"),
        ("2K:1K", "ends below its start"),
        ("1:2:3:4", "is not a range"),
    ],
)
def test_a_bad_size_is_named(text, says):
    with pytest.raises(bench.BenchError, match="bytes") as caught:
        bench.parse_sizes(text)
    assert says in str(caught.value)


# --- plans ---------------------------------------------------------------------------------------


def plan(**changes) -> bench.Plan:
    given = {"ops": ["all_reduce"], "backends": ["fake"], "sizes": [8], "iterations": 4, **changes}
    return bench.Plan(**given)


@pytest.mark.parametrize(
    ("changes", "ranks", "says"),
    [
        ({"ops": ["alreduce"]}, 1, "unknown operation 'alreduce'; allowed: all_reduce, broadcast"),
        ({"backends": ["glo"]}, 1, "unknown backend 'glo'; built here: "),
        ({"backends": ["c10d:glo"]}, 1, "torch.distributed knows c10d:gloo"),
        ({"backends": ["fake", "fake"]}, 1, "a backend is given twice"),
        ({"backends": []}, 1, "no backend"),
        ({"ops": []}, 1, "no operation"),
        ({"dtype": "float31"}, 1, "unknown dtype 'float31'; allowed: float32"),
        ({"modes": ["fast"]}, 1, "unknown mode 'fast'; allowed: sync, async"),
        ({"device": "gpu"}, 1, "unknown device 'gpu'"),
        ({"sizes": [0]}, 1, "bytes: 0 is not at least 1"),
        ({"iterations": 0}, 1, "iterations: 0 is not at least 1"),
        ({"rounds": 0}, 1, "rounds: 0 is not at least 1"),
        ({"iterations": 10**23}, 1, "iterations: 1"),
        ({"rounds": 10**23}, 1, "rounds: 1"),
        ({"seconds": 1e300}, 1, "seconds: 1e+300 is not above 0 and at most 86400"),
        ({}, 10**8, "ranks: 100000000 is above 1024"),
        ({"seconds": -1.0}, 1, "seconds: -1.0 is not above 0"),
        ({}, 0, "ranks: 0 is not at least 1"),
        ({}, 2, "fake always has 1 rank, not 2"),
        ({"ops": ["send_recv"]}, 1, "send_recv needs at least 2 ranks"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_anything_starts(changes, ranks, says):
    with pytest.raises(bench.BenchError) as caught:
        next(launch(plan(**changes), ranks))
    assert says in str(caught.value)


def test_a_backend_takes_its_own_hints_and_those_of_all():
    name = "nccl@one=1@:two=2@::three=3"
    assert parse_backend(name) == ("nccl", {"nccl::one": "1", "two": "2", ":three": "3"})
    assert parse_backend("ctran@ctran::algorithm=ring") == parse_backend("ctran@algorithm=ring")
    for nothing in ("nccl@one", "nccl@=1", "nccl@:=1"):
        with pytest.raises(bench.BenchError, match="is not <knob>=<value>"):
            parse_backend(nothing)


def test_a_plan_survives_its_way_to_the_processes():
    some = plan(modes=["sync", "async"], sizes=[8, 16])
    assert bench.Plan.from_json(some.to_json()) == some


@pytest.mark.parametrize(
    ("op", "factor_of_4"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("all_gather_single", 0.75),
        ("reduce_scatter", 0.75),
        ("reduce_scatter_single", 0.75),
        ("all_to_all", 0.75),
        ("gather", 0.75),
        ("scatter", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(op, factor_of_4):
    assert bench.OPERATIONS[op].bus_factor(4) == factor_of_4


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [op for op in bench.OPERATIONS if op != "barrier"])
@pytest.mark.parametrize("rank", range(3))
def test_the_check_sees_one_wrong_element(op, rank):
    exchange = bench.OPERATIONS[op](Case(rank, 3, 12, torch.float32, torch.device("cpu")))
    for got, want in exchange.results():
        got.copy_(want)
    assert exchange.wrong() is None
    for got, want in exchange.results():
        for bad in (want[-1] + 1, float("nan")):
            got[-1] = bad
            assert f"element {got.numel() - 1} is" in exchange.wrong()
        got.copy_(want)


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("numel", [0, 1, 7, 1000])
def test_unequal_shares_add_up(ranks, numel):
    shares = Case(0, ranks, numel, torch.float32, torch.device("cpu")).shares()
    assert len(shares) == ranks
    assert sum(shares) == numel
    assert min(shares) >= 0


class Adding(torchcomms.TorchCommBackend):
    """One rank; all_reduce adds `amount`, and says in `calls` that it was there."""

    amount = 0.0
    calls: ClassVar[list[type]] = []

    def init(self, device, name, options):
        pass

    def finalize(self):
        pass

    def get_rank(self):
        return 0

    def get_size(self):
        return 1

    def all_reduce(self, tensor, op, async_op):
        self.calls.append(type(self))
        tensor.add_(self.amount)


class Right(Adding):
    pass


class Wrong(Adding):
    amount = 1.0


torchcomms.register_backend("bench_right", Right)
torchcomms.register_backend("bench_wrong", Wrong)


def test_a_wrong_value_is_reported():
    notes = []
    both = plan(backends=["bench_right", "bench_wrong"])
    right, wrong = bench.run_here(both, alone(), note=notes.append)
    assert (right.correct, wrong.correct) == (True, False)
    assert notes == ["all_reduce on bench_wrong, rank 0: element 0 is 1.0, must be 0.0"]
    assert "WRONG" in bench.points_table([right, wrong])


def test_backends_take_turns_in_an_order_given_by_the_seed():
    def order(seed: int) -> list[type]:
        Adding.calls.clear()
        both = plan(backends=["bench_right", "bench_wrong"], iterations=8, rounds=8, seed=seed)
        assert len(list(bench.run_here(both, alone()))) == 2
        return list(Adding.calls)

    def turns(calls: list[type]) -> list[set[type]]:
        timed = calls[-2 * 8 * 2 - 2 : -2]  # before the checks: an untimed and a timed call each
        return [set(timed[i : i + 4]) for i in range(0, len(timed), 4)]

    first = order(1)
    assert turns(first) == [{Right, Wrong}] * 8
    assert order(1) == first
    assert any(order(seed) != first for seed in range(2, 6))


def test_a_backend_that_moves_no_data_is_neither_right_nor_wrong():
    (point,) = bench.run_here(plan(), alone())
    assert point.correct is None
    assert point.ranks == 1
    assert point.iterations == 4


def test_buffers_have_at_least_one_element_and_sizes_that_come_out_equal_are_measured_once():
    points = list(bench.run_here(plan(sizes=[1, 2, 3, 4, 9], dtype="float64"), alone()))
    assert [point.bytes for point in points] == [8]


# --- processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def points() -> list[bench.Point]:
    """Every operation on 2 processes, beside the baseline."""
    everything = plan(
        ops=list(bench.OPERATIONS),
        backends=["gloo", "c10d:gloo"],
        sizes=SIZES,
        modes=["sync", "async"],
        iterations=2,
    )
    labels, notes = [], []
    measured = list(launch(everything, 2, labels.append, notes.append))
    assert len(labels) == everything.points() // 2
    expected = {f"c10d:gloo has no {op}: not measured" for op in ONLY_OURS}
    all_to_all = {"c10d:gloo has no all_to_all: not measured"}  # torch's gloo learnt it after 2.11
    assert set(notes) - all_to_all == expected
    return measured


def test_every_operation_is_measured_and_correct(points):
    assert {(p.op, p.mode) for p in points if p.backend == "gloo"} == {
        (op, mode) for op in bench.OPERATIONS for mode in ("eager", "async")
    }
    missing = set(bench.OPERATIONS) - {p.op for p in points if p.backend == "c10d:gloo"}
    assert missing - {"all_to_all"} == ONLY_OURS
    assert [(p.op, p.backend) for p in points if p.correct is not True] == []


def test_a_point_says_what_was_measured_and_where(points):
    point = next(p for p in points if (p.op, p.bytes) == ("all_reduce", 4096))
    line = json.loads(point.to_json())
    assert line["ranks"] == 2
    assert line["iterations"] == 2
    assert 0 < line["min_us"] <= line["p50_us"] <= line["p99_us"]
    assert line["min_us"] <= line["mean_us"] <= line["p99_us"]
    assert line["algbw_gbps"] == pytest.approx(4096 / line["p50_us"] / 1e3, rel=1e-2)
    assert line["busbw_gbps"] == line["algbw_gbps"]  # 2 (n - 1) / n is 1 for 2 ranks
    assert line["torch"] == torch.__version__
    assert "cores" in line["hardware"]
    assert {"algorithm", "commit", "date", "environment", "dtype"} <= line.keys()
    assert bench.Point.from_json(point.to_json()) == point


def test_bytes_are_those_of_the_largest_buffer(points):
    assert {p.bytes for p in points if p.op == "barrier"} == {0}
    assert {p.bytes for p in points if p.op != "barrier"} == set(SIZES)


def test_points_are_shown_as_table_comparison_and_lines(points, tmp_path):
    table = bench.points_table(points).splitlines()
    assert len(table) == len(points) + 2
    assert "send_recv" in "\n".join(table)
    some = [p for p in points if (p.op, p.mode, p.bytes) == ("broadcast", "eager", 8)]
    comparison = bench.compare_table(some).splitlines()
    assert comparison[0].split("  ")[-1].strip() == "gloo / c10d:gloo"
    assert comparison[2].split()[-1] == f"{some[0].p50_us / some[1].p50_us:.3f}"
    bench.write_lines(points, tmp_path / "points.jsonl")
    lines = (tmp_path / "points.jsonl").read_text().splitlines()
    assert [bench.Point.from_json(line) for line in lines] == points


def test_one_backend_cannot_be_compared(points):
    with pytest.raises(bench.BenchError, match="at least two"):
        bench.compare_table([p for p in points if p.backend == "gloo"])


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_points_are_drawn(points, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    some = [p for p in points if p.op in ("all_reduce", "barrier")]
    picture = tmp_path / f"points.{suffix}"
    bench.plot(some, picture)
    start = picture.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if suffix == "png" else b"<?xml" in start


def test_a_picture_of_unknown_kind_is_refused(tmp_path):
    with pytest.raises(bench.BenchError, match=r"must end in one of \.png"):
        bench.plot([], tmp_path / "points.jpeg2000")


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_failure_in_a_process_is_told_and_leaves_none(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_GLOO_INTERFACE", "nowhere0")
    before = children()
    with pytest.raises(bench.BenchError, match=r"(?s)rank [01].*nowhere0"):
        list(launch(plan(backends=["gloo"]), 2))
    assert children() <= before


def test_a_process_that_is_killed_is_told_and_leaves_none():
    before = children()
    endless = launch(plan(backends=["gloo"], sizes=[8, 1 << 26], iterations=1000), 2)
    next(endless)  # the small size is done; the large one takes a minute
    victim = int(min(children() - before, key=int))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(bench.BenchError, match=r"rank 1|measuring process 0 ended with signal 9"):
        list(endless)
    assert children() <= before


# --- overhead ------------------------------------------------------------------------------------


def test_the_cost_of_a_call_is_measured_for_each_way_of_calling():
    costs = bench.call_cost(blocks=20)
    assert [cost.call for cost in costs] == [
        "all_reduce(tensor, op, False)",
        "all_reduce(tensor=, op=, async_op=)",
        "comm.all_reduce(tensor, op, async_op=False)",
        "c10d backend.allreduce([tensor]).wait()",
        "c10d group.allreduce([tensor]).wait()",
    ]
    for cost in costs:
        assert 0 < cost.p50_us <= cost.p99_us
        assert cost.blocks == 20
        assert cost.calls_per_block == 100


def test_the_cost_of_the_import_is_measured_against_torch_without_us():
    cost = bench.import_cost(pairs=1)
    assert cost.pairs == 1
    assert cost.added_s == pytest.approx(cost.torch_and_torchcomms_s - cost.torch_s, abs=1e-3)
