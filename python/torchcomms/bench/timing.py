"""Takes samples: one call by the host's clock, or a batch of calls by the device's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from torchcomms.bench.exchange import Call

# About, of device time: the skew of the ranks at the start is small against it.
_BATCH_NS = 5_000_000
_MOST_CALLS = 50  # so that the device's queue never blocks the host


@dataclass(frozen=True)
class Sample:
    """The ns of one operation, by the device's clock if there is one, and by the host's."""

    took_ns: int
    host_ns: int | None = None  # with the synchronization at the end
    enqueue_ns: int | None = None  # of the calls without the synchronization


class Clock(Protocol):
    """Takes samples of calls."""

    def batch(self, call_ns: int) -> int:
        """Returns how many calls of `call_ns` ns each make one sample."""

    def sample(self, call: Call, batch: int) -> Sample: ...


class HostClock:
    """Times each call alone. `finish` waits for work that a call has only enqueued."""

    def __init__(self, finish: Callable[[], Any] | None = None) -> None:
        self._finish = finish

    def batch(self, call_ns: int) -> int:
        return 1

    def sample(self, call: Call, batch: int) -> Sample:
        start = perf_counter_ns()
        call()
        if self._finish is not None:
            self._finish()
        return Sample(perf_counter_ns() - start)


class DeviceClock:
    """Times calls in a row on the current stream, between two events."""

    def __init__(
        self,
        new_event: Callable[..., Any] = torch.cuda.Event,
        synchronize: Callable[[], Any] = torch.cuda.synchronize,
    ) -> None:
        self._begin, self._end = new_event(enable_timing=True), new_event(enable_timing=True)
        self._synchronize = synchronize

    def batch(self, call_ns: int) -> int:
        return min(max(_BATCH_NS // max(call_ns, 1), 1), _MOST_CALLS)

    def sample(self, call: Call, batch: int) -> Sample:
        call()  # a synchronization point for the devices of all ranks
        self._synchronize()
        self._begin.record()
        start = perf_counter_ns()
        for _ in repeat(None, batch):
            call()
        enqueued = perf_counter_ns()
        self._end.record()
        self._synchronize()
        done = perf_counter_ns()
        device_ns = self._begin.elapsed_time(self._end) * 1e6
        times_ns = (device_ns, done - start, enqueued - start)
        return Sample(*(round(time_ns / batch) for time_ns in times_ns))


def clock_of(device: torch.device) -> Clock:
    if device.type == "cuda":
        return DeviceClock()
    return HostClock(None if device.type == "cpu" else torch.accelerator.synchronize)
