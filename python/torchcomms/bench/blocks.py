"""How many blocks of a GPU an operation takes, as torch's profiler sees its kernels."""

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
_ELEMENTWISE = "at::native"  # torch's kernels that copy, fill or add up: as many blocks as elements


def blocks_of(call: Call) -> int | None:
    """The most blocks of the kernels of one call that run at the same time: 0 where it has none,
    None where the profiler sees nothing."""
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
    """Of a trace, without torch's own elementwise kernels."""
    work = [event for event in events if event.get("cat") in ("kernel", *_COPIES)]
    if not work:
        return None
    edges: list[tuple[float, int]] = []
    for event in work:
        if event["cat"] == "kernel" and _ELEMENTWISE not in event["name"]:
            blocks = math.prod(event["args"]["grid"])
            edges += [(event["ts"], blocks), (event["ts"] + event["dur"], -blocks)]
    running = most = 0
    for _, change in sorted(edges):  # at one time, ends come first
        running += change
        most = max(most, running)
    return most
