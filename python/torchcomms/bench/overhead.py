"""Measures what torchcomms costs a Python program beside the communication: call, import."""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

import torch
import torch.distributed as dist

import torchcomms

_CUSTOM = dist.ProcessGroup.BackendType.CUSTOM
CALLS_PER_BLOCK = 100  # a single call is too short for the clock's resolution, so blocks are timed
_IMPORT_LIMIT_S = 120


@dataclass(frozen=True)
class CallCost:
    """The cost of one way of calling.

    Each sample is the mean of a block of `calls_per_block` calls, loop included. So p99 is that of
    blocks.
    """

    call: str
    p50_us: float
    p99_us: float
    blocks: int
    calls_per_block: int = CALLS_PER_BLOCK

    as_dict = asdict


@dataclass(frozen=True)
class ImportCost:
    """Seconds from an interpreter's start to the end of its exit: medians over processes."""

    torch_s: float
    torch_and_torchcomms_s: float
    added_s: float  # median of the differences within a pair
    pairs: int

    as_dict = asdict


def call_cost(blocks: int = 2000) -> list[CallCost]:
    """Times an 8-byte all_reduce(async_op=False) of one rank on `fake`, which moves no data.

    What remains is the cost of torchcomms: argument conversion, validation, recording, the work
    object. The call is also timed as a backend of a torch.distributed process group with a wait:
    directly, and through the group, which adds torch's dispatcher. The ways of calling take turns,
    block by block.

    Args:
        blocks: the number of timed blocks of each way; a tenth more warms up.
    """
    comm = torchcomms.new_comm("fake", torch.device("cpu"), name="call_cost")
    buffer = torch.zeros(2)
    op = torchcomms.ReduceOp.SUM
    all_reduce = comm.all_reduce

    def positional() -> None:
        for _ in repeat(None, CALLS_PER_BLOCK):
            all_reduce(buffer, op, False)

    def keywords() -> None:
        for _ in repeat(None, CALLS_PER_BLOCK):
            all_reduce(tensor=buffer, op=op, async_op=False)

    def attribute() -> None:
        for _ in repeat(None, CALLS_PER_BLOCK):
            comm.all_reduce(buffer, op, async_op=False)

    wrapper: Any = torchcomms._comms._BackendWrapper(comm)
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    group._register_backend(torch.device("cpu"), _CUSTOM, wrapper)
    group._set_default_backend(_CUSTOM)
    tensors = [buffer]

    def wrapped() -> None:
        for _ in repeat(None, CALLS_PER_BLOCK):
            wrapper.allreduce(tensors).wait()

    def grouped() -> None:
        for _ in repeat(None, CALLS_PER_BLOCK):
            group.allreduce(tensors).wait()

    ways: dict[str, Callable[[], None]] = {
        "all_reduce(tensor, op, False)": positional,
        "all_reduce(tensor=, op=, async_op=)": keywords,
        "comm.all_reduce(tensor, op, async_op=False)": attribute,
        "c10d backend.allreduce([tensor]).wait()": wrapped,
        "c10d group.allreduce([tensor]).wait()": grouped,
    }
    samples: dict[str, list[float]] = {name: [] for name in ways}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for block in range(-blocks // 10, blocks):  # the first tenth warms up
            for name, way in ways.items():
                start = perf_counter_ns()
                way()
                took_us = (perf_counter_ns() - start) / CALLS_PER_BLOCK / 1e3
                if block >= 0:
                    samples[name].append(took_us)
    finally:
        if collecting:
            gc.enable()
    comm.finalize()
    return [_call_cost(name, sorted(values)) for name, values in samples.items()]


def _call_cost(name: str, ordered: list[float]) -> CallCost:
    count = len(ordered)
    return CallCost(
        call=name,
        p50_us=round(ordered[count // 2], 4),
        p99_us=round(ordered[count * 99 // 100], 4),
        blocks=count,
    )


# torch imports an installed torchcomms by itself, so it must be hidden.
_WITHOUT = "import sys; sys.modules['torchcomms'] = None; import torch"
_WITH = "import torch; import torchcomms"


def import_cost(pairs: int = 5) -> ImportCost:
    """Times `import torch` alone and with torchcomms, in new processes that take turns."""
    without, added, total = [], [], []
    for pair in range(-1, pairs):  # the first pair fills the page cache
        alone, both = _seconds(_WITHOUT), _seconds(_WITH)
        if pair >= 0:
            without.append(alone)
            total.append(both)
            added.append(both - alone)
    return ImportCost(
        torch_s=round(statistics.median(without), 4),
        torch_and_torchcomms_s=round(statistics.median(total), 4),
        added_s=round(statistics.median(added), 4),
        pairs=pairs,
    )


def _seconds(program: str) -> float:
    start = perf_counter_ns()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=_IMPORT_LIMIT_S)
    return (perf_counter_ns() - start) / 1e9
