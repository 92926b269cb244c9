"""Measures every operation on every backend, next to torch.distributed, with one harness.

    plan = Plan(ops=["all_reduce"], backends=["gloo", "c10d:gloo"], sizes=parse_sizes("8,1K:1M"))
    points = list(launch(plan, ranks=2))          # on processes of its own
    with World.of_launcher("bench") as world:     # or in the processes of torchrun
        points = list(run_here(plan, world))

`torchcomms bench` is the command for this package. `write_lines`, `points_table`, `beside_table`
and `plot` show the result.
"""

from torchcomms.bench.errors import BenchError
from torchcomms.bench.exchange import OPERATIONS
from torchcomms.bench.launch import launch
from torchcomms.bench.measure import run_here
from torchcomms.bench.overhead import CallCost, ImportCost, call_cost, import_cost
from torchcomms.bench.plan import Plan
from torchcomms.bench.plot import draw, plot, require_matplotlib
from torchcomms.bench.result import Point
from torchcomms.bench.show import beside_table, compare_table, points_table, write_lines
from torchcomms.bench.sizes import parse_sizes
from torchcomms.bench.world import World

__all__ = [
    "OPERATIONS",
    "BenchError",
    "CallCost",
    "ImportCost",
    "Plan",
    "Point",
    "World",
    "beside_table",
    "call_cost",
    "compare_table",
    "draw",
    "import_cost",
    "launch",
    "parse_sizes",
    "plot",
    "points_table",
    "require_matplotlib",
    "run_here",
    "write_lines",
]
