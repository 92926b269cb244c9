"""The one timed loop: warm-up, interleaved rounds, the slowest rank of each iteration, a check."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from time import perf_counter_ns

import torch

from torchcomms.bench import operations as _operations  # noqa: F401 (registers)
from torchcomms.bench import point_to_point as _point_to_point  # noqa: F401 (registers)
from torchcomms.bench.backends import Backend, opened
from torchcomms.bench.exchange import Call, Case, Exchange, operation
from torchcomms.bench.plan import DTYPES, Plan
from torchcomms.bench.result import Point, machine
from torchcomms.bench.world import World

_COLD_CALLS = 3  # connections, first touches of buffers
_WARM_CALLS = 7  # their median tells how many fit into plan.seconds
_MOST_ITERATIONS = 50_000
_MODE_WORD = {"sync": "eager", "async": "async"}

Report = Callable[[str], None]


def silent(text: str) -> None:
    """The Report that tells nobody."""


def run_here(
    plan: Plan, world: World, progress: Report = silent, note: Report = silent
) -> Iterator[Point]:
    """Measures `plan` in this process, together with every other process of `world`.

    Collective. Yields each point as soon as it is known, on rank 0 only; the other ranks must
    exhaust the (empty) iterator too. `progress` gets a label before each group of points, `note` a
    sentence for each point that has no measurement (on rank 0) and for each wrong value (there).
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
    """The plan's sizes in elements: at least one (for each rank, where the buffer is cut)."""
    if op == "barrier":
        return [0]
    itemsize = DTYPES[plan.dtype].itemsize
    unit = ranks if operation(op).chunked else 1
    return sorted({max(size // itemsize // unit, 1) * unit for size in plan.sizes})


class _Side:
    """One backend at one point: its own buffers, its bound call, its samples."""

    def __init__(self, backend: Backend, exchange: Exchange, call: Call) -> None:
        self.backend = backend
        self.exchange = exchange
        self.call = call
        self.samples_ns: list[int] = []


class _Loop:
    """Measures point after point of one plan. Every step is collective."""

    def __init__(self, plan: Plan, world: World, note: Report) -> None:
        self._plan = plan
        self._world = world
        self._note = note
        self._facts = machine(plan.device)
        self._order = random.Random(plan.seed)  # the same on all ranks
        self._rounds = min(plan.rounds, plan.iterations or plan.rounds)
        self.device = torch.device(plan.device)
        if plan.device == "cuda":  # each rank its own
            self.device = torch.device("cuda", world.rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)

    def points(self, op: str, numel: int, mode: str, backends: list[Backend]) -> list[Point]:
        """All backends at one operation, size and mode, taking turns."""
        sides = []
        for backend in backends:
            dtype = DTYPES[self._plan.dtype]
            case = Case(self._world.rank, self._world.size, numel, dtype, self.device)
            exchange = operation(op)(case)
            call = backend.call(exchange, mode == "async")
            if call is not None:
                sides.append(_Side(backend, exchange, call))
            elif self._world.rank == 0:
                self._note(f"{backend.name} has no {op}: not measured")
        self._sample(sides)
        return [self._point(side, mode) for side in sides]

    def _sample(self, sides: list[_Side]) -> None:
        turns = [(side, self._block_length(side)) for side in sides]
        for _ in range(self._rounds):
            self._order.shuffle(turns)
            for side, block in turns:
                self._world.barrier()
                self._run(side, 1)  # what the other backends pushed out of the caches
                side.samples_ns += self._run(side, block)
        if self._plan.iterations is not None:
            for side in sides:
                del side.samples_ns[self._plan.iterations :]

    def _block_length(self, side: _Side) -> int:
        """Timed calls a round, the same on all ranks. Warms up."""
        self._run(side, _COLD_CALLS)
        warm_ns = sorted(self._run(side, _WARM_CALLS))[_WARM_CALLS // 2]
        fitting = int(self._plan.seconds * 1e9 / max(warm_ns, 1))
        total = self._plan.iterations or min(max(fitting, self._rounds), _MOST_ITERATIONS)
        return self._world.agree(-(-total // self._rounds))

    def _run(self, side: _Side, count: int) -> list[int]:
        call = side.call
        align = self._world.barrier if side.exchange.rooted else None
        finish = None if self.device.type == "cpu" else torch.accelerator.synchronize
        samples = []
        collecting = gc.isenabled()
        gc.disable()
        try:
            for _ in range(count):
                if align is not None:
                    align()
                start = perf_counter_ns()
                call()
                if finish is not None:  # on an accelerator the call has only enqueued
                    finish()
                samples.append(perf_counter_ns() - start)
        finally:
            if collecting:
                gc.enable()
        return samples

    def _point(self, side: _Side, mode: str) -> Point:
        exchange, ranks = side.exchange, self._world.size
        worst_ns = self._world.gather(torch.tensor(side.samples_ns)).amax(dim=0).sort().values
        worst_us = (worst_ns.double() / 1e3 / exchange.messages).tolist()
        count = len(worst_us)
        p50_us = worst_us[count // 2]
        size_bytes = exchange.case.numel * exchange.case.dtype.itemsize
        algbw = size_bytes / p50_us / 1e3
        return Point(
            op=exchange.name,
            backend=side.backend.name,
            algorithm=side.backend.algorithm(exchange.name, size_bytes),
            mode=_MODE_WORD[mode],
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
            correct=self._correct(side),
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **self._facts,
        )

    def _correct(self, side: _Side) -> bool | None:
        """One more call, on known values, after the timed loop."""
        side.exchange.fill()
        side.call()
        if not side.backend.moves_data:
            return None
        wrong = side.exchange.wrong()
        if wrong:
            op, backend, rank = side.exchange.name, side.backend.name, self._world.rank
            self._note(f"{op} on {backend}, rank {rank}: {wrong}")
        return not bool(self._world.gather(torch.tensor([int(wrong is not None)])).any())
