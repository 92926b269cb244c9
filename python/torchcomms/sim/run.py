"""Simulates the points of a plan, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from torchcomms import __version__, _comms
from torchcomms.sim.plan import BOOTSTRAP, Plan
from torchcomms.sim.result import Point

Report = Callable[[str], None]


def simulate(
    plan: Plan, progress: Report = lambda label: None, note: Report = lambda text: None
) -> Iterator[Point]:
    """Yields every point that can be simulated.

    Args:
        plan: the points to simulate.
        progress: called with a label before each point.
        note: called with a sentence for each point that cannot be simulated.
    Raises:
        SimError: the plan is not valid.
    """
    plan.check()
    for algorithm, ranks, size in plan.cases():
        progress(f"{plan.operation} {algorithm}, {ranks} ranks")
        start = time.perf_counter()
        settings = {**plan.settings, "ranks": ranks}
        try:
            if plan.operation == BOOTSTRAP:
                row = _comms._simulate_bootstrap(settings)
            else:
                settings["bytes"] = size
                row = _comms._simulate_collective(plan.operation, algorithm, settings)
        except ValueError as error:
            note(f"{plan.operation}, {ranks} ranks: {error}")
            continue
        wall_s = time.perf_counter() - start
        messages, sent = row.pop("messages"), row.pop("bytes_sent")
        yield Point(
            op=plan.operation,
            algorithm=algorithm,
            ranks=ranks,
            bytes=size,
            time_us=row.pop("time_us"),
            messages_max=messages["max"],
            messages_mean=messages["mean"],
            bytes_max=sent["max"],
            bytes_mean=sent["mean"],
            enumerated=row.pop("enumerated", ranks),
            memory_per_rank_bytes=row.pop("bytes_per_rank"),
            events=row.pop("events"),
            wall_s=wall_s,
            details=row,
            settings=dict(plan.settings),
            torchcomms=__version__,
        )
