"""Where tensors are and what orders them: the host, or a GPU with its streams and graphs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import torch

_STREAMS = 3  # beside the current one
_CYCLES_A_US = 1500  # of a GPU, about
_ROWS = 96  # of the matrices that a straggler multiplies


class Device:
    """The host: every call does what it says before it returns."""

    streams = 1

    def __init__(self, device: torch.device) -> None:
        self.torch = device

    def stream(self, number: int) -> contextlib.AbstractContextManager[object]:
        """What runs inside goes to this stream."""
        return contextlib.nullcontext()

    def branches(self, numbers: Iterable[int]) -> contextlib.AbstractContextManager[object]:
        """Inside, these streams go on from the current one; it waits for them at the end."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Returns when everything is done."""

    def be_late(self, kind: str, time_us: int) -> None:
        """Lets this rank's next operation wait."""
        if kind == "host":
            time.sleep(time_us / 1e6)
        else:
            self._compute(time_us)

    def _compute(self, time_us: int) -> None:
        until = time.perf_counter() + time_us / 1e6
        matrix = torch.ones(_ROWS, _ROWS)
        while time.perf_counter() < until:
            torch.mm(matrix, matrix)

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """A graph of what `body` does, to be run again and again."""
        raise NotImplementedError


class Gpu(Device):
    """A CUDA device of this process's own."""

    streams = 1 + _STREAMS

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        torch.cuda.set_device(device)
        self._side = [torch.cuda.Stream(device) for _ in range(_STREAMS)]  # type: ignore[no-untyped-call]

    def stream(self, number: int) -> contextlib.AbstractContextManager[object]:
        if number == 0:
            return contextlib.nullcontext()
        return torch.cuda.stream(self._side[number - 1])

    @contextlib.contextmanager
    def branches(self, numbers: Iterable[int]) -> Iterator[None]:
        main = torch.cuda.current_stream()
        sides = [self._side[number - 1] for number in set(numbers) - {0}]
        for side in sides:
            side.wait_stream(main)
        yield
        for side in sides:
            main.wait_stream(side)

    def settle(self) -> None:
        torch.cuda.synchronize()

    def _compute(self, time_us: int) -> None:
        torch.cuda._sleep(_CYCLES_A_US * time_us)  # type: ignore[no-untyped-call]

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Threads of the libraries may do what a capture of the whole process forbids.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            body()
        replay: Callable[[], None] = graph.replay
        return replay


def device_of(kind: str, rank: int) -> Device:
    """The one of rank `rank`."""
    if kind == "cpu":
        return Device(torch.device("cpu"))
    return Gpu(torch.device(kind, rank))
