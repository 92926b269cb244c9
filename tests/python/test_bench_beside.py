"""The benchmark harness with a product beside the operations, and what is read of the profiler."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from torchcomms import bench
from torchcomms.bench.beside import Beside, HostProduct, OverlappedCall, Turn, paced
from torchcomms.bench.blocks import most_blocks
from torchcomms.bench.exchange import Awaited

NEW = (
    "beside", "product_p50_us", "product_p99_us", "product_beside_p50_us", "product_beside_p99_us",
    "product_ratio", "operation_beside_p50_us", "operation_ratio",
)  # fmt: skip


def plan(**changes) -> bench.Plan:
    given = {"ops": ["all_reduce"], "backends": ["fake"], "sizes": [8], "modes": ["async"]}
    return bench.Plan(**{**given, "beside": "matmul", "iterations": 4, **changes})


def alone() -> bench.World:
    return bench.World(0, 1, dist.HashStore())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"beside": "conv"}, "unknown computation 'conv'; allowed: matmul"),
        ({"modes": ["sync"]}, "mode async only, not sync:"),
        ({"modes": ["sync", "async"]}, "mode async only, not sync, async"),
        ({"device": "meta"}, "--beside needs device cpu or cuda, not meta"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(changes, says):
    with pytest.raises(bench.BenchError) as caught:
        plan(**changes).check(1)
    assert says in str(caught.value)


# --- a run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def points() -> list[bench.Point]:
    backends = ["gloo", "c10d:gloo"]
    some = plan(ops=["all_reduce", "send_recv"], backends=backends, sizes=[1 << 16])
    notes: list[str] = []
    measured = list(bench.launch(some, 2, note=notes.append))
    assert notes == [
        f"{backend} blocks in send_recv: not measured with a concurrent product"
        for backend in backends
    ]
    return measured


def test_both_sides_are_told_of_what_each_costs_the_other(points):
    for point in (p for p in points if p.op == "all_reduce"):
        assert point.correct is True
        assert point.beside == "matmul float32 384x384x384"
        assert 0 < point.product_p50_us <= point.product_p99_us
        assert 0 < point.product_beside_p50_us <= point.product_beside_p99_us
        ratio = point.product_beside_p50_us / point.product_p50_us
        assert point.product_ratio == pytest.approx(ratio, rel=1e-3)
        assert point.blocks is None
        assert bench.Point.from_json(point.to_json()) == point


def test_an_operation_that_cannot_be_left_is_measured_alone(points):
    left_out = [p for p in points if p.op == "send_recv"]
    assert [p.backend for p in left_out] == ["gloo", "c10d:gloo"]
    assert all(p.correct and p.p50_us > 0 for p in left_out)
    assert all(getattr(p, name) is None for p in left_out for name in NEW)


def test_the_table_has_a_line_a_point(points):
    title, header, _, *lines = bench.beside_table(points).splitlines()
    assert title == "beside matmul float32 384x384x384:"
    assert header.split()[-1] == "blocks"
    assert len(lines) == len(points)
    first = points[0]
    words = lines[0].split()
    assert words[:4] == ["all_reduce", "async", "64K", "gloo"]
    assert words[4:9] == [
        f"{first.product_p50_us:.1f}", f"{first.product_p99_us:.1f}",
        f"{first.product_beside_p50_us:.1f}", f"{first.product_beside_p99_us:.1f}",
        f"{first.product_ratio:.3f}",
    ]  # fmt: skip
    assert words[-1] == "-"


def test_without_it_a_point_says_nothing_of_it():
    (point,) = bench.run_here(plan(beside=None), alone())
    assert all(getattr(point, name) is None for name in (*NEW, "blocks"))
    fields = {name: value for name, value in vars(point).items() if name not in (*NEW, "blocks")}
    assert bench.Point(**fields) == point  # lines of earlier runs


# --- turns ---------------------------------------------------------------------------------------


class Lasting:
    """Work that ends after it was asked so many times."""

    def __init__(self, looks: int) -> None:
        self.looks, self.waits = looks, 0

    def is_completed(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def wait(self) -> None:
        self.waits += 1


class Ahead(bench.World):
    """A world in which another rank has begun `begun` operations."""

    begun = 0

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        return torch.stack([values, torch.full_like(values, self.begun)])


@pytest.mark.parametrize(("begun", "want"), [(0, 4), (4, 4), (7, 7)])
def test_on_a_cpu_the_next_one_starts_when_one_has_ended_and_all_ranks_start_as_many(begun, want):
    world = Ahead(0, 1, dist.HashStore())
    world.begun = begun
    works: list[Lasting] = []

    def start() -> Lasting:
        works.append(Lasting(2))
        return works[-1]

    turn = HostProduct(world, edge=2).beside(Awaited(start), count=10, calls=0)
    assert len(turn.products_ns) == 10
    assert len(works) == want  # the third look sees the end: after products 3, 6 and 9 of 11
    assert [work.waits for work in works] == [1] * want
    assert turn.call_ns > 0


def test_the_pace_is_that_of_the_ends_in_the_meantime():
    assert paced([1, 2, 4, 6, 9], 2, 7) == 2
    assert paced([1, 2, 4], 3, 7) is None
    assert paced([], 0, 1) is None


class Planned:
    """A product of 10 us, whose calls of 2 us each cover it when there are enough of them."""

    name, least = "planned", 2

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.asked: list[int] = []

    def alone(self, count: int) -> list[int]:
        return [10_000] * count

    def beside(self, call, count: int, calls: int) -> Turn:
        self.asked.append(calls)
        covered = calls >= self.enough
        return Turn([15_000] * count, 3_000 if covered else None, covered)


def measured(product: Planned) -> tuple[dict[str, object], list[str]]:
    beside = Beside(plan(rounds=2), alone(), product, random.Random(1))
    side, notes = OverlappedCall("some", lambda: None, call_ns=2_000), list[str]()
    beside.sample([side], notes.append)
    return beside.facts(side, per_call=1, alone_us=2.0), notes


def test_calls_are_as_many_as_last_until_the_products_end():
    product = Planned(enough=100)
    facts, notes = measured(product)
    assert notes == []
    assert product.asked == [32, 64, 128, *[128] * 4]  # 2 + 2 * (2 + 1) products / a call
    assert facts == {
        "beside": "matmul planned",
        "product_p50_us": 10.0,
        "product_p99_us": 10.0,
        "product_beside_p50_us": 15.0,
        "product_beside_p99_us": 15.0,
        "product_ratio": 1.5,
        "operation_beside_p50_us": 3.0,
        "operation_ratio": 1.5,
    }


def test_calls_that_no_number_of_makes_long_enough_are_said():
    facts, notes = measured(Planned(enough=1 << 20))
    assert facts == {}
    assert len(notes) == 1
    assert "some: 4096 calls end before 2 products" in notes[0]


# --- blocks --------------------------------------------------------------------------------------


def kernel(name: str, grid: list[int], ts: float, dur: float) -> dict[str, object]:
    return {"cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": {"grid": grid}}


COPY = {"cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 0.0, "dur": 9.0, "args": {}}
HOST = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0.0, "dur": 9.0}


@pytest.mark.parametrize(
    ("events", "want"),
    [
        ([], None),
        ([HOST], None),
        ([HOST, COPY], 0),
        ([kernel("ours", [16, 2, 1], 1, 5)], 32),
        ([kernel("one", [16, 1, 1], 1, 5), kernel("two", [4, 1, 1], 6, 5)], 16),
        ([kernel("one", [16, 1, 1], 1, 5), kernel("two", [4, 1, 1], 5.5, 5), COPY], 20),
        (
            [
                kernel("void at::native::vectorized_elementwise_kernel<4>", [999, 1, 1], 1, 5),
                kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", [24, 1, 1], 2, 5),
            ],
            24,
        ),
    ],
)
def test_blocks_are_those_of_kernels_that_run_at_the_same_time(events, want):
    assert most_blocks(events) == want


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["sync", "graph"])
def test_a_product_of_a_gpu_has_operations_beside_it(mode):
    ranks = min(torch.cuda.device_count(), 2)
    both = plan(
        backends=["nccl", "c10d:nccl"], sizes=[1 << 24], modes=[mode], device="cuda",
        dtype="bfloat16", graph_operations=5,
    )  # fmt: skip
    points = list(bench.launch(both, ranks))
    assert [p.backend for p in points] == ["nccl", "c10d:nccl"]
    for point in points:
        assert point.correct is True
        assert point.beside == "matmul bfloat16 8192x8192x8192"
        assert point.product_ratio > 0.5
        # Of a graph, which is one call, there may not be a whole one beside a product.
        assert ranks == 1 or mode == "graph" or point.operation_beside_p50_us > 0
        assert ranks == 1 or 0 < point.blocks <= 132
