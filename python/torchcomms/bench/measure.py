"""The timed loop: warm-up, interleaved rounds, the slowest rank of each iteration, a check."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import torch

from torchcomms.bench import operations as _operations  # noqa: F401 (registers)
from torchcomms.bench import point_to_point as _point_to_point  # noqa: F401 (registers)
from torchcomms.bench.backends import Backend, opened
from torchcomms.bench.beside import Beside, DeviceProduct, OverlappedCall, product_of
from torchcomms.bench.blocks import blocks_of
from torchcomms.bench.errors import NotMeasured
from torchcomms.bench.exchange import Call, Case, Exchange, operation
from torchcomms.bench.graph import Capture
from torchcomms.bench.plan import DTYPES, Plan, Report
from torchcomms.bench.result import Point, machine
from torchcomms.bench.timing import HostClock, Sample, clock_of
from torchcomms.bench.world import World

_COLD_CALLS = 3  # for connections and first touches of buffers
_WARM_CALLS = 7  # their median gives the number of calls that fit into plan.seconds
_MOST_ITERATIONS = 50_000
_MODE_LABEL = {"sync": "eager", "async": "async", "graph": "graph"}


def silent(text: str) -> None:
    """A Report that does nothing."""


def run_here(
    plan: Plan, world: World, progress: Report = silent, note: Report = silent
) -> Iterator[Point]:
    """Measures `plan` in this process, together with all other processes of `world`. Collective.

    Yields each point as soon as it is measured, on rank 0 only. The other ranks must exhaust their
    empty iterator too.

    Args:
        plan: what to measure.
        world: the measuring processes.
        progress: called with a label before each group of points.
        note: called with a sentence for each point without a measurement, on rank 0, and for each
            wrong value, on the rank that has it.
    Raises:
        BenchError: the plan is not valid.
    """
    plan.check(world.size)
    loop = _Loop(plan, world, note)
    with opened(plan.backends, world, loop.device) as backends:
        for op in plan.ops:
            for numel in _counts(plan, op, world.size):
                for mode in plan.modes:
                    progress(f"{op} {mode} {numel * DTYPES[plan.dtype].itemsize} B")
                    for point in loop.points(op, numel, mode, backends):
                        if world.rank == 0:
                            yield point


def _counts(plan: Plan, op: str, ranks: int) -> list[int]:
    """The plan's sizes in elements: at least one, or one per rank if the buffer is cut."""
    if op == "barrier":
        return [0]
    itemsize = DTYPES[plan.dtype].itemsize
    unit = ranks if operation(op).chunked else 1
    return sorted({max(size // itemsize // unit, 1) * unit for size in plan.sizes})


class _Side:
    """One backend at one point: its buffers, its bound call, its samples."""

    def __init__(self, backend: Backend, exchange: Exchange, call: Call, check: Call) -> None:
        self.backend = backend
        self.exchange = exchange
        self.call = call
        # The call that is checked: one operation, or several that give the same result.
        self.check = check
        self.batch = 1  # calls per sample
        self.samples: list[Sample] = []
        self.overlapped_call: OverlappedCall | None = None
        self.blocks: int | None = None
        self.correct: bool | None = None


class _Loop:
    """Measures the points of one plan, one after the other. Every method is collective."""

    def __init__(self, plan: Plan, world: World, note: Report) -> None:
        self._plan = plan
        self._world = world
        self._note = note
        self._facts = machine(plan.device)
        self._order = random.Random(plan.seed)  # the same order on all ranks
        self._rounds = min(plan.rounds, plan.iterations or plan.rounds)
        self.device = torch.device(plan.device)
        if plan.device == "cuda":  # one GPU per rank
            self.device = torch.device("cuda", world.rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self._clock = clock_of(self.device)
        self._beside: Beside | None = None
        if plan.beside is not None:
            if self.device.type == "cuda":
                DeviceProduct.prefer_calls()
            product = product_of(self.device, world)
            self._beside = Beside(plan, world, product, self._order)

    def points(self, op: str, numel: int, mode: str, backends: list[Backend]) -> list[Point]:
        """Measures all backends at one operation, size and mode; the backends take turns."""
        sides = []
        for backend in backends:
            try:
                exchange = operation(op)(self._case(numel, backend))
                sides.append(self._side(exchange, mode, backend))
            except NotMeasured as reason:
                self._report(str(reason))
        for side in sides:  # checked before, so that no wrong operation is timed
            self._check(side)
        self._sample(sides)
        if self._beside is not None:
            self._sample_beside(self._beside, sides)
        for side in sides:
            self._check(side)
        measured = [self._point(side, mode) for side in sides]
        sides.clear()
        for backend in backends:
            backend.clear()
        return measured

    def _report(self, what: str) -> None:
        """Passes a note that is equal on all ranks to the caller once, on rank 0."""
        if self._world.rank == 0:
            self._note(what)

    def _case(self, numel: int, backend: Backend) -> Case:
        dtype = DTYPES[self._plan.dtype]
        return Case(self._world.rank, self._world.size, numel, dtype, self.device, backend.room)

    def _side(self, exchange: Exchange, mode: str, backend: Backend) -> _Side:
        missing = NotMeasured(f"{backend.name} has no {exchange.name}: not measured")
        if mode != "graph":
            call = backend.call(exchange, mode == "async")
            if call is None:
                raise missing
            return _Side(backend, exchange, call, call)
        capture = Capture(lambda: backend.call(exchange, False))
        graph = capture.graph(self._plan.graph_operations)
        once = capture.graph(1) if exchange.accumulates else graph
        exchange.clear()
        if graph is None or once is None:
            raise missing
        return _Side(backend, exchange, graph, once)

    def _sample(self, sides: list[_Side]) -> None:
        turns = [(side, self._block_length(side)) for side in sides]
        for _ in range(self._rounds):
            self._order.shuffle(turns)
            for side, block in turns:
                self._world.barrier()
                self._run(side, 1)  # reloads the caches after the other backends
                side.samples += self._run(side, block)
        if self._plan.iterations is not None:
            for side in sides:
                del side.samples[self._plan.iterations :]

    def _sample_beside(self, beside: Beside, sides: list[_Side]) -> None:
        for side in sides:
            call_ns = sorted(each.took_ns for each in side.samples)[len(side.samples) // 2]
            overlapped_call = OverlappedCall(side.backend.name, side.call, call_ns)
            if overlapped_call.can_be_left(self.device):
                side.overlapped_call = overlapped_call
            else:
                self._report(
                    f"{side.backend.name} blocks in {side.exchange.name}: not measured with a "
                    "concurrent product"
                )
        beside.sample(
            [side.overlapped_call for side in sides if side.overlapped_call is not None],
            self._report,
        )
        if self.device.type == "cuda":
            for side in sides:
                blocks = blocks_of(side.call)
                own = torch.tensor([-1 if blocks is None else blocks])
                most = int(self._world.gather(own).max())
                side.blocks = None if most < 0 else most

    def _block_length(self, side: _Side) -> int:
        """Warms up, and sets the batch.

        Returns the number of samples per round, equal on all ranks.
        """
        self._run(side, _COLD_CALLS)
        call_ns = sorted(each.took_ns for each in self._run(side, _WARM_CALLS))[_WARM_CALLS // 2]
        side.batch = self._world.agree(self._clock.batch(call_ns))
        fitting = int(self._plan.seconds * 1e9 / max(call_ns * side.batch, 1))
        total = self._plan.iterations or min(max(fitting, self._rounds), _MOST_ITERATIONS)
        return self._world.agree(-(-total // self._rounds))

    def _run(self, side: _Side, count: int) -> list[Sample]:
        call, batch, sample = side.call, side.batch, self._clock.sample
        # Calls of a batch may overlap, so they need no barrier.
        each_alone = isinstance(self._clock, HostClock) and side.exchange.rooted
        align = self._world.align if each_alone else None
        samples = []
        collecting = gc.isenabled()
        gc.disable()
        try:
            for _ in range(count):
                if align is not None:
                    align()
                samples.append(sample(call, batch))
        finally:
            if collecting:
                gc.enable()
        return samples

    def _worst_us(self, side: _Side, per_call: int, clock: str) -> list[float]:
        """The time of one operation on the slowest rank, for each sample; ascending."""
        own = torch.tensor([getattr(sample, clock) for sample in side.samples])
        worst_ns = self._world.gather(own).amax(dim=0).sort().values
        return list((worst_ns.double() / 1e3 / per_call).tolist())

    def _point(self, side: _Side, mode: str) -> Point:
        exchange, ranks = side.exchange, self._world.size
        operations = self._plan.graph_operations if mode == "graph" else 1  # in one call
        per_call = exchange.messages * operations
        worst_us = self._worst_us(side, per_call, "took_ns")
        host: dict[str, Any] = {}
        if side.samples[0].host_ns is not None:
            for clock in ("host", "enqueue"):
                times = self._worst_us(side, per_call, f"{clock}_ns")
                host[f"{clock}_p50_us"] = round(times[len(times) // 2], 3)
                host[f"{clock}_p99_us"] = round(times[len(times) * 99 // 100], 3)
        count = len(worst_us)
        beside: dict[str, Any] = {}
        if self._beside is not None and side.overlapped_call is not None:
            beside = self._beside.facts(side.overlapped_call, per_call, worst_us[count // 2])
        p50_us = worst_us[count // 2]
        size_bytes = exchange.case.numel * exchange.case.dtype.itemsize
        algbw = size_bytes / p50_us / 1e3
        return Point(
            op=exchange.name,
            backend=side.backend.name,
            algorithm=side.backend.algorithm(exchange.name, size_bytes),
            mode=_MODE_LABEL[mode],
            bytes=size_bytes,
            dtype=self._plan.dtype,
            ranks=ranks,
            iterations=count,
            min_us=round(worst_us[0], 3),
            mean_us=round(sum(worst_us) / count, 3),
            p50_us=round(p50_us, 3),
            p99_us=round(worst_us[count * 99 // 100], 3),
            algbw_gbps=round(algbw, 6),
            busbw_gbps=round(algbw * type(exchange).bus_factor(ranks), 6),
            correct=side.correct,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            batch=side.batch * operations,
            blocks=side.blocks,
            **host,
            **beside,
            **self._facts,
        )

    def _check(self, side: _Side) -> None:
        """Makes one call on known values, and compares. The first wrong result is final."""
        side.exchange.fill()
        side.check()
        wrong = side.exchange.wrong() if side.backend.moves_data else None
        side.exchange.clear()
        if not side.backend.moves_data or side.correct is False:
            return
        if wrong:
            op, backend, rank = side.exchange.name, side.backend.name, self._world.rank
            self._note(f"{op} on {backend}, rank {rank}: {wrong}")
        side.correct = not bool(self._world.gather(torch.tensor([int(wrong is not None)])).any())
