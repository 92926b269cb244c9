"""Counts the thread blocks of an operation's kernels with torch's profiler."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from torchcomms.bench.exchange import Call

_CALLS = 3
_COPIES = ("gpu_memcpy", "gpu_memset")
# Torch's kernels that copy, fill or add: their blocks follow the number of elements.
_ELEMENTWISE = "at::native"


def blocks_of(call: Call) -> int | None:
    """The largest number of blocks of one call that run at the same time.

    Returns: 0 if the call has no kernel, None if the profiler sees nothing.
    """
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(_CALLS):
            call()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        seen.export_chrome_trace(str(path))
        return most_blocks(json.loads(path.read_text())["traceEvents"])


def most_blocks(events: Iterable[dict[str, Any]]) -> int | None:
    """The largest number of blocks in a trace, without torch's own elementwise kernels."""
    work = [event for event in events if event.get("cat") in ("kernel", *_COPIES)]
    if not work:
        return None
    edges: list[tuple[float, int]] = []
    for event in work:
        if event["cat"] == "kernel" and _ELEMENTWISE not in event["name"]:
            blocks = math.prod(event["args"]["grid"])
            edges += [(event["ts"], blocks), (event["ts"] + event["dur"], -blocks)]
    running = most = 0
    for _, change in sorted(edges):  # at the same time, ends sort before starts
        running += change
        most = max(most, running)
    return most
