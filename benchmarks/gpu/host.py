"""What one call takes the host, from Python and from C++, in turns."""

from __future__ import annotations

import statistics
from collections import defaultdict

import torch
from torchcomms.bench import OPERATIONS, World
from torchcomms.bench.backends import opened
from torchcomms.bench.exchange import Case
from torchcomms.bench.raw import Raw
from torchcomms.bench.timing import clock_of

from benchmarks.gpu.sides import ON, OURS, RAW, synchronize

CALLS = 50  # in a row: they fit into the device's queue
RAW_IN_CPP = "raw:nccl from C++"


def enqueue_us(
    world: World, device: torch.device, size_bytes: int, rounds: int
) -> dict[str, float]:
    """Medians on the slowest rank, of the mean over calls in a row of a small all_reduce.

    Collective; the same on all ranks.
    """
    names = [OURS, ON[device.type].baseline, RAW]
    clock = clock_of(device)
    dtype = torch.float32
    times: dict[str, list[float]] = defaultdict(list)
    case = Case(world.rank, world.size, size_bytes // dtype.itemsize, dtype, device)
    with opened(names, world, device) as backends:
        exchange = OPERATIONS["all_reduce"](case)
        calls = {backend.name: backend.call(exchange, False) for backend in backends}
        (raw,) = (backend for backend in backends if isinstance(backend, Raw))
        for turn in range(-2, rounds):  # the first ones warm up
            took = {}
            for name, call in calls.items():
                assert call is not None
                sample = clock.sample(call, CALLS)
                took[name] = (sample.enqueue_ns or sample.took_ns) / 1e3
            took[RAW_IN_CPP] = raw.enqueue_us(exchange, CALLS)
            synchronize(device)
            for name, value in took.items():
                times[name] += [value] if turn >= 0 else []
    medians_ns = torch.tensor([round(statistics.median(each) * 1e3) for each in times.values()])
    worst_ns = world.gather(medians_ns).amax(dim=0).tolist()
    return {name: ns / 1e3 for name, ns in zip(times, worst_ns, strict=True)}
