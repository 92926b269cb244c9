"""torch's symmetric memory in the benchmark harness: what it refuses, and where its results are."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory
from torchcomms import bench
from torchcomms.bench import backends, symmetric
from torchcomms.bench.errors import NotMeasured
from torchcomms.bench.exchange import Case, Exchange
from torchcomms.bench.symmetric import Symmetric

WAYS = ("symm_mem:one_shot", "symm_mem:two_shot")
HAVE = ("all_reduce", "all_gather_single", "reduce_scatter_single")


def plan(**changes) -> bench.Plan:
    given = {"ops": ["all_reduce"], "backends": list(WAYS), "sizes": [8], **changes}
    return bench.Plan(**given)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "symm_mem:one_shot needs device cuda, not cpu"),
        (
            {"backends": ["symm_mem:tree"]},
            "symm_mem:one_shot, symm_mem:two_shot",
        ),
    ],
)
def test_a_plan_that_cannot_work_is_refused(changes, says):
    with pytest.raises(bench.BenchError) as caught:
        plan(**changes).check(2)
    assert says in str(caught.value)


class Ranks:
    """A world whose ranks are at these places."""

    def __init__(self, *places: tuple[int, int]) -> None:
        self.size = len(places)
        self._places = places

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        assert values.shape == (2,)
        return torch.tensor(self._places)


@pytest.mark.parametrize(
    ("places", "reached", "says"),
    [
        ([(7, 0), (8, 1)], True, "needs all ranks on one host"),
        ([(7, 0), (7, 0)], True, "needs a GPU for each rank: 2 ranks have 1"),
        ([(7, 0), (7, 1)], False, "cuda:0 cannot access the memory of cuda:1"),
        ([(7, 0), (7, 1)], True, None),
    ],
)
def test_gpus_that_do_not_reach_each_other_are_told(monkeypatch, places, reached, says):
    monkeypatch.setattr("torch.cuda.can_device_access_peer", lambda one, other: reached)
    device = torch.device("cuda", 0)
    if says is None:
        symmetric._check_reach(WAYS[0], Ranks(*places), device)
        return
    with pytest.raises(bench.BenchError, match=says):
        symmetric._check_reach(WAYS[0], Ranks(*places), device)


class Alone(Symmetric):
    """One rank on a CPU, which is told that there are `ranks`."""

    def __init__(self, name: str, ranks: int = 2) -> None:
        self.name, self._way = name, name.removeprefix("symm_mem:")
        self._ranks, self._group = ranks, "alone"
        self._memory = self._mapping = None


@pytest.fixture
def on_the_cpu(monkeypatch) -> Iterator[list[int]]:
    """torch's operations as they are among one rank; the sizes of the memory that was mapped."""
    mapped: list[int] = []
    monkeypatch.delenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", raising=False)
    library = torch.library.Library("symm_mem", "IMPL")
    for name, function in {
        "one_shot_all_reduce_out": lambda data, op, group, out: out.copy_(data),
        "two_shot_all_reduce_": lambda data, op, group: data,
        "_low_contention_all_gather": lambda data, group: data.clone(),
        "_low_contention_reduce_scatter": lambda data, op, group: data.clone(),
    }.items():
        library.impl(name, function, "CPU")
    monkeypatch.setattr(_symmetric_memory, "empty", torch.empty)

    def rendezvous(memory: torch.Tensor, group: str) -> None:
        assert os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
        mapped.append(memory.nbytes)

    monkeypatch.setattr(_symmetric_memory, "rendezvous", rendezvous)
    yield mapped
    library._destroy()
    os.environ.pop("TORCH_SYMM_MEM_DISABLE_MULTICAST", None)


def exchange_of(op: str, numel: int = 64, dtype: torch.dtype = torch.float32) -> Exchange:
    return bench.OPERATIONS[op](Case(0, 1, numel, dtype, torch.device("cpu")))


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("op", HAVE)
def test_values_are_checked_where_the_operation_leaves_them(on_the_cpu, name, op):
    exchange = exchange_of(op)
    call = Alone(name).call(exchange, False)
    assert call is not None
    call()  # an earlier one, whose output is another
    exchange.clear()
    exchange.fill()
    assert exchange.wrong() is not None or name == "symm_mem:two_shot"  # of one rank, in place
    call()
    assert exchange.wrong() is None
    exchange.output[-1] += 1
    assert "element 63 is" in exchange.wrong()


def test_memory_is_mapped_anew_only_where_it_does_not_suffice(on_the_cpu):
    backend = Alone(WAYS[0])
    for numel in (64, 1 << 20, (8 << 20) + 1, 64):
        exchange = exchange_of("all_reduce", numel)
        backend.call(exchange, False)
        assert exchange.buffer.numel() == numel
        assert not exchange.buffer.any()
    assert on_the_cpu == [32 << 20, 64 << 20]


def test_what_torch_lacks_is_named(on_the_cpu):
    for op in set(bench.OPERATIONS) - set(HAVE) - {"send_recv", "batch"}:
        assert Alone(WAYS[0]).call(exchange_of(op), False) is None
    for backend, exchange, says in (
        (Alone(WAYS[0]), exchange_of("all_reduce", 8, torch.int32), "of int32, only of float32 an"),
        (Alone(WAYS[1]), exchange_of("all_reduce", 3, torch.bfloat16), "of 6 B, only of multiples"),
        (Alone(WAYS[1], 3), exchange_of("all_reduce"), "of 3 ranks, only of 2, 4, 8: not measured"),
    ):
        with pytest.raises(NotMeasured, match=f"{backend.name} has no all_reduce {says}"):
            backend.call(exchange, False)
    assert on_the_cpu == []


def test_a_side_that_lacks_a_point_is_left_out_with_its_reason(monkeypatch):
    class Partly(Alone):
        def call(self, exchange: Exchange, async_op: bool):
            raise NotMeasured("this size is not measured")

        def close(self) -> None:
            pass

    opened = backends._open
    monkeypatch.setattr(
        backends,
        "_open",
        lambda name, *rest: Partly(WAYS[0]) if name == "c10d:gloo" else opened(name, *rest),
    )
    notes: list[str] = []
    both = plan(backends=["fake", "c10d:gloo"], iterations=2)
    points = list(bench.run_here(both, bench.World(0, 1, dist.HashStore()), note=notes.append))
    assert [point.backend for point in points] == ["fake"]
    assert notes == ["this size is not measured"]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 CUDA devices")
@pytest.mark.parametrize("mode", ["sync", "graph"])
def test_it_is_measured_and_correct_on_gpus(mode):
    notes: list[str] = []
    both = plan(
        ops=[*HAVE, "broadcast"], sizes=[4096, 1 << 20], dtype="bfloat16", modes=[mode],
        device="cuda", iterations=4,
    )  # fmt: skip
    points = list(bench.launch(both, 2, note=notes.append))
    assert {(p.op, p.backend, p.bytes) for p in points} == {
        (op, backend, size) for op in HAVE for backend in WAYS for size in both.sizes
    }
    assert [(p.op, p.backend) for p in points if p.correct is not True] == []
    assert set(notes) == {f"{name} has no broadcast: not measured" for name in WAYS}
