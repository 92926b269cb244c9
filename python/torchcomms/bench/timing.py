"""What one sample is: a call by the host's clock, or a batch of calls by a device's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from torchcomms.bench.exchange import Call

_BATCH_NS = 5_000_000  # about, of a device's time: the ranks' skew at its start drowns in it
_MOST_CALLS = 50  # so that the device's queue never holds the host up


@dataclass(frozen=True)
class Sample:
    """Nanoseconds of one operation; a device's clock beside the host's where there is one."""

    took_ns: int
    host_ns: int | None = None  # with the synchronisation at the end
    enqueue_ns: int | None = None  # of the calls alone


class Clock(Protocol):
    """How samples are taken."""

    def batch(self, call_ns: int) -> int:
        """How many calls, that take so long each, are one sample."""

    def sample(self, call: Call, batch: int) -> Sample: ...


class HostClock:
    """Every call for itself; `finish` waits for what a call has only enqueued."""

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
    """Calls in a row on the current stream, between two of its events."""

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
        call()  # after it, all ranks' devices are at one place
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
