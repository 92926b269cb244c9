"""Calls in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchcomms.bench.exchange import Call

_WARM_CALLS = 3  # connections and buffers are made outside of a capture


class Capture:
    """Captures what `make_call` returns; that is called on the capture's stream, so that a call
    may be bound to it."""

    def __init__(self, make_call: Callable[[], Call | None]) -> None:
        current = torch.cuda.current_stream()
        # Kernels of a graph have the priority of the stream that they were captured on.
        self._stream = torch.cuda.Stream(priority=current.priority)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._call = make_call()
            for _ in range(_WARM_CALLS if self._call is not None else 0):
                self._call()  # type: ignore[misc]
        torch.cuda.synchronize()

    def graph(self, operations: int) -> Call | None:
        """A launch of a graph with so many calls in a row; None where there is no call."""
        if self._call is None:
            return None
        graph = torch.cuda.CUDAGraph()
        # Threads of the libraries may do what a capture of the whole process forbids.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            for _ in range(operations):
                self._call()
        return graph.replay
