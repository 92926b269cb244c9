"""Runs the fault table as a program: `torchcomms drill`.

A cell (`cell.py`) is a fault, and the program of the ranks that it affects; `cells/` has all of
them. `drill(Plan(...))` runs cells, and judges each by the failure contract of
docs/concepts/faults.md.
"""

from torchcomms.drill.cell import BASELINE, EVERY, OURS, Cell, Skip
from torchcomms.drill.cells import CELLS
from torchcomms.drill.plan import DrillError, Plan, chosen
from torchcomms.drill.run import drill
from torchcomms.drill.show import cells_table, markdown, results_table, summary, write_json
from torchcomms.drill.verdict import Finding, Result

__all__ = [
    "BASELINE", "CELLS", "EVERY", "OURS", "Cell", "DrillError", "Finding", "Plan", "Result", "Skip",
    "cells_table", "chosen", "drill", "markdown", "results_table", "summary", "write_json",
]  # fmt: skip
