"""The device of the tensors: the host, or a GPU with its streams and graphs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import torch

_STREAMS = 3  # in addition to the current one
_CYCLES_A_US = 1500  # approximate clock of a GPU
_ROWS = 96  # rows of the matrices that a late rank multiplies


class Device:
    """The host: a call is complete when it returns."""

    streams = 1

    def __init__(self, device: torch.device) -> None:
        self.torch = device

    def stream(self, number: int) -> contextlib.AbstractContextManager[object]:
        """Context manager: calls inside run on this stream."""
        return contextlib.nullcontext()

    def branches(self, numbers: Iterable[int]) -> contextlib.AbstractContextManager[object]:
        """Context manager: these streams follow the current one, which waits for them at the
        end."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Returns when all work of the device is done."""

    def be_late(self, kind: str, time_us: int) -> None:
        """Delays this rank's next operation."""
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
        """Captures `body` in a graph. Returns the function that replays the graph."""
        raise NotImplementedError


class Gpu(Device):
    """A CUDA device that only this process uses."""

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
        # Threads of the libraries may make calls that a process-wide capture forbids.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            body()
        replay: Callable[[], None] = graph.replay
        return replay


def device_of(kind: str, rank: int) -> Device:
    """The device of rank `rank`."""
    if kind == "cpu":
        return Device(torch.device("cpu"))
    return Gpu(torch.device(kind, rank))
