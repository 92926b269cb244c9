"""Measures a matrix product and a concurrent operation: how much each slows down the other."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from torchcomms.bench.exchange import Awaited, Call
from torchcomms.bench.plan import Plan, Report
from torchcomms.bench.world import World

_DEVICE_EDGE, _HOST_EDGE = 8192, 384
_WARM_PRODUCTS = 5
_CALLS_IN_PRODUCTS = 3  # so that several calls end while the products run
_MOST_PRODUCTS, _MOST_CALLS, _MOST_TURNS = 64, 4096, 1000


@dataclass(frozen=True)
class Turn:
    """The times in ns of each product, and of one call meanwhile."""

    products_ns: list[int]
    call_ns: int | None  # None: fewer than two calls ended meanwhile
    covered: bool  # a call was in flight until the last product ended


class Product(Protocol):
    """Matrix products in a row. The first one is not timed."""

    name: str
    least: int  # products per turn, at least

    def alone(self, count: int) -> list[int]:
        """Runs `count` products alone. Returns the ns of each."""

    def beside(self, call: Call, count: int, calls: int) -> Turn:
        """Runs `count` products while `call` is repeated. Collective.

        `calls` is the number of repetitions, for products that must know it before they start.
        """


def paced(ends: Sequence[float], begin: float, until: float) -> float | None:
    """The mean interval of calls that end between `begin` and `until`; None for fewer than two."""
    inside = [end for end in ends if begin <= end <= until]
    return (inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > 1 else None


class DeviceProduct:
    """Runs products on a stream of their own, while calls run on the current stream.

    `prefer_calls` gives the calls' stream priority. Without it, no block of a call would run before
    the last block of a product.
    """

    name = f"bfloat16 {_DEVICE_EDGE}x{_DEVICE_EDGE}x{_DEVICE_EDGE}"
    least = 2

    def __init__(self, device: torch.device, edge: int = _DEVICE_EDGE) -> None:
        kind: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        self._left, self._right = torch.randn(edge, edge, **kind), torch.randn(edge, edge, **kind)
        self._out = torch.empty(edge, edge, **kind)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()

    @staticmethod
    def prefer_calls() -> None:
        torch.cuda.set_stream(torch.cuda.Stream(priority=-1))  # type: ignore[no-untyped-call]

    def alone(self, count: int) -> list[int]:
        marks = self._multiply(count)
        torch.cuda.synchronize()
        return self._between(marks)

    def beside(self, call: Call, count: int, calls: int) -> Turn:
        call()  # a synchronization point for the devices of all ranks
        first = self._mark(torch.cuda.current_stream())
        self._stream.wait_event(first)
        marks = self._multiply(count)
        ends = []
        for _ in repeat(None, calls):
            call()
            ends.append(self._mark(torch.cuda.current_stream()))
        torch.cuda.synchronize()
        begin, until = first.elapsed_time(marks[0]), first.elapsed_time(marks[-1])
        ends_ms = [first.elapsed_time(end) for end in ends]
        pace_ms = paced(ends_ms, begin, until)
        call_ns = None if pace_ms is None else round(pace_ms * 1e6)
        return Turn(self._between(marks), call_ns, ends_ms[-1] >= until)

    def _multiply(self, count: int) -> list[torch.cuda.Event]:
        with torch.cuda.stream(self._stream):
            torch.mm(self._left, self._right, out=self._out)
            marks = [self._mark(self._stream)]
            for _ in range(count):
                torch.mm(self._left, self._right, out=self._out)
                marks.append(self._mark(self._stream))
        return marks

    @staticmethod
    def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    @staticmethod
    def _between(marks: Sequence[torch.cuda.Event]) -> list[int]:
        return [round(one.elapsed_time(other) * 1e6) for one, other in pairwise(marks)]


class HostProduct:
    """Runs products on the calling thread.

    Between two products, it polls whether the operation has ended, and starts the next one.
    """

    name = f"float32 {_HOST_EDGE}x{_HOST_EDGE}x{_HOST_EDGE}"
    least = 12

    def __init__(self, world: World, edge: int = _HOST_EDGE) -> None:
        self._world = world
        self._matrix, self._out = torch.ones(edge, edge), torch.empty(edge, edge)

    def alone(self, count: int) -> list[int]:
        marks = []
        for _ in range(count + 1):
            self._multiply()
            marks.append(perf_counter_ns())
        return [after - before for before, after in pairwise(marks)]

    def beside(self, call: Call, count: int, calls: int) -> Turn:
        assert isinstance(call, Awaited), "OverlappedCall.can_be_left"
        work, started = call.start(), 1
        marks, ends = [], []
        for _ in range(count + 1):
            self._multiply()
            if work.is_completed():
                work.wait()  # raises the error of the operation
                ends.append(perf_counter_ns())
                work, started = call.start(), started + 1
            marks.append(perf_counter_ns())
        most = int(self._world.gather(torch.tensor([started])).max())
        work.wait()
        for _ in range(most - started):  # peer ranks have started more calls
            call()
        pace = paced(ends, marks[0], marks[-1])
        products_ns = [after - before for before, after in pairwise(marks)]
        return Turn(products_ns, None if pace is None else round(pace), covered=True)

    def _multiply(self) -> None:
        torch.mm(self._matrix, self._matrix, out=self._out)


def product_of(device: torch.device, world: World) -> Product:
    return HostProduct(world) if device.type == "cpu" else DeviceProduct(device)


@dataclass
class OverlappedCall:
    """An operation with a concurrent product: its call, and the measured times."""

    backend: str
    call: Call
    call_ns: int  # of a call alone
    products: int = 0  # of a turn
    calls: int = 0  # of a turn
    alone_ns: list[int] = field(default_factory=list)
    beside_ns: list[int] = field(default_factory=list)
    calls_ns: list[int] = field(default_factory=list)  # -1: unknown for this turn

    def can_be_left(self, device: torch.device) -> bool:
        """Returns: whether the calling thread can compute while the operation is in flight."""
        return device.type != "cpu" or isinstance(self.call, Awaited)


class Beside:
    """Measures the sides of a point, which take turns.

    Every method is collective, except `name`.
    """

    def __init__(self, plan: Plan, world: World, product: Product, order: random.Random) -> None:
        self._plan, self._world, self._product, self._order = plan, world, product, order

    @property
    def name(self) -> str:
        return f"{self._plan.beside} {self._product.name}"

    def sample(self, sides: Sequence[OverlappedCall], note: Report) -> None:
        """Takes all samples of the sides.

        `note` receives a sentence for each operation that is too short to overlap a product. Such
        an operation has no facts.
        """
        product_ns = self._world.agree(
            round(statistics.median(self._product.alone(_WARM_PRODUCTS)))
        )
        turns: list[tuple[OverlappedCall, int]] = []
        for side in sides:
            call_ns = self._world.agree(max(side.call_ns, 1))
            wanted = -(-_CALLS_IN_PRODUCTS * call_ns // product_ns)
            side.products = min(max(wanted, self._product.least), _MOST_PRODUCTS)
            products_ns = (side.products + 1) * product_ns
            side.calls = min(2 + 2 * products_ns // call_ns, _MOST_CALLS)
            if self._turn(side) is not None:  # this turn finds the number of calls
                turns.append((side, self._turns(2 * products_ns)))
        for _ in range(self._rounds()):
            self._order.shuffle(turns)
            for side, count in turns:
                for _ in range(count):
                    self._add_turn(side)
        for side in sides:
            if not side.calls_ns:
                note(
                    f"{side.backend}: {side.calls} calls end before {side.products} products: "
                    "not measured with a concurrent product"
                )

    def _add_turn(self, side: OverlappedCall) -> None:
        self._world.barrier()
        alone_ns = self._product.alone(side.products)
        turn = self._turn(side)
        if turn is None:
            return
        side.alone_ns += alone_ns
        side.beside_ns += turn.products_ns
        side.calls_ns.append(-1 if turn.call_ns is None else turn.call_ns)

    def _rounds(self) -> int:
        return min(self._plan.rounds, self._plan.iterations or self._plan.rounds)

    def _turns(self, turn_ns: int) -> int:
        """The number of turns per round."""
        fitting = min(max(int(self._plan.seconds * 1e9 / turn_ns), 1), _MOST_TURNS)
        return -(-(self._plan.iterations or fitting) // self._rounds())

    def _turn(self, side: OverlappedCall) -> Turn | None:
        """Runs one turn with enough calls to outlast the products on all ranks.

        Returns: None if even the largest number of calls does not.
        """
        while True:
            self._world.barrier()
            turn = self._product.beside(side.call, side.products, side.calls)
            if bool(self._world.gather(torch.tensor([int(turn.covered)])).all()):
                return turn
            if side.calls >= _MOST_CALLS:
                return None
            side.calls = min(2 * side.calls, _MOST_CALLS)

    def facts(self, side: OverlappedCall, per_call: int, alone_us: float) -> dict[str, Any]:
        """The fields of a point. A call has `per_call` operations, each of `alone_us` when alone.

        Times are those of the slowest rank. Collective.
        """
        if not side.calls_ns:
            return {}
        alone, beside = self._worst_us(side.alone_ns), self._worst_us(side.beside_ns)
        rows = self._world.gather(torch.tensor(side.calls_ns))
        known = rows[:, (rows >= 0).all(dim=0)].amax(dim=0).double() / 1e3 / per_call
        operation = float(known.median()) if known.numel() else None
        p50, beside_p50 = alone[len(alone) // 2], beside[len(beside) // 2]
        return {
            "beside": self.name,
            "product_p50_us": round(p50, 3),
            "product_p99_us": round(alone[len(alone) * 99 // 100], 3),
            "product_beside_p50_us": round(beside_p50, 3),
            "product_beside_p99_us": round(beside[len(beside) * 99 // 100], 3),
            "product_ratio": round(beside_p50 / p50, 4),
            "operation_beside_p50_us": None if operation is None else round(operation, 3),
            "operation_ratio": None if operation is None else round(operation / alone_us, 4),
        }

    def _worst_us(self, own_ns: Sequence[int]) -> list[float]:
        worst = self._world.gather(torch.tensor(own_ns)).amax(dim=0).sort().values
        return list((worst.double() / 1e3).tolist())
