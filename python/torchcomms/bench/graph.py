"""Captures calls in CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchcomms.bench.exchange import Call

_WARM_CALLS = 3  # they make connections and buffers outside of a capture


class Capture:
    """Captures the call that `make_call` returns.

    `make_call` runs on the capture's stream, so that a call may be bound to this stream.
    """

    def __init__(self, make_call: Callable[[], Call | None]) -> None:
        current = torch.cuda.current_stream()
        # Kernels of a graph have the priority of the stream of their capture.
        self._stream = torch.cuda.Stream(priority=current.priority)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._call = make_call()
            for _ in range(_WARM_CALLS if self._call is not None else 0):
                self._call()  # type: ignore[misc]
        torch.cuda.synchronize()

    def graph(self, operations: int) -> Call | None:
        """Returns the launch of a graph with `operations` calls; None if there is no call."""
        if self._call is None:
            return None
        graph = torch.cuda.CUDAGraph()
        # Threads of the libraries may make calls that a process-wide capture forbids.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            for _ in range(operations):
                self._call()
        return graph.replay
