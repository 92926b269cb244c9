"""Simulates collective algorithms and the start-up of a job at sizes of up to a million ranks.

    for point in simulate(Plan("all_reduce", ["ring", "two_level"], [1024, 131072], [1 << 20])):
        print(point.ranks, point.algorithm, point.time_us)

The schedules are those that the library executes. The address exchange is the state machine that
real ranks run. Only the network is a model. `torchcomms sim` is the command for this package.
"""

from torchcomms.sim.plan import BOOTSTRAP, Plan, SimError, algorithms, parse_counts
from torchcomms.sim.plot import plot
from torchcomms.sim.result import Point, points_table, write_lines
from torchcomms.sim.run import simulate

__all__ = [
    "BOOTSTRAP",
    "Plan",
    "Point",
    "SimError",
    "algorithms",
    "parse_counts",
    "plot",
    "points_table",
    "simulate",
    "write_lines",
]
