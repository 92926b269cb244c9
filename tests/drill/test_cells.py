"""Every cell of the fault table, on our backends; few of them in each test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torchcomms.drill import CELLS, OURS

# What every kind of fault does, few of them waiting for limits: a second or less each.
QUICK = {
    "F01/idle", "F01/all_reduce", "F01/split", "F01/finalize", "F02/stopped", "F03/exit",
    "F04/peer", "F06/inside", "F07/deaf-idle", "F08/after", "F10", "F12", "F14", "F14/checked",
    "F15/same", "F15/two-async",
    "F16/kinds", "F17/double", "F17/thread", "F18/dropped", "F20/fork", "F22/start-3", "F23/full",
    "F27/work", "F28/duplicate", "F40/small", "F43/wait", "F44/blocks",
}  # fmt: skip
# What the side channel and the watchdog of a backend over a vendor's library do.
QUICK_OF_VENDORS = {
    "F01/idle", "F01/all_reduce", "F01/split", "F02/stopped", "F04/peer", "F10", "F12", "F15/same",
    "F17/inflight", "F19", "F45/death",
}  # fmt: skip
# What kernels of ours find beside it.
QUICK_OF_KERNELS = {"F10", "F11", "F12", "F13", "F15/same", "F16/kinds"}
QUICKS = {"ctran": QUICK, "nccl": QUICK_OF_VENDORS, "ncclx": QUICK_OF_KERNELS}


def _cases() -> Iterator[object]:
    for backend in OURS:
        for cell in CELLS:
            if backend in cell.backends:
                quick = QUICKS.get(backend, set())
                is_quick = cell.id in quick
                marks = () if is_quick else (pytest.mark.slow,)
                yield pytest.param(cell, backend, id=f"{backend}-{cell.id}", marks=marks)


@pytest.mark.serial
@pytest.mark.parametrize(("cell", "backend"), _cases())
def test_survivors_see_what_the_table_promises(cell, backend, verdict):
    result = verdict(cell, backend)
    if result.verdict == "skipped":
        pytest.skip(result.why)
    shown = "\n".join([*result.findings, *result.errors])
    assert not result.bad, f"{result.verdict}: {result.why}\n{shown}"


def test_every_quick_cell_exists():
    assert {cell.id for cell in CELLS} >= QUICK | QUICK_OF_VENDORS | QUICK_OF_KERNELS


def test_cells_have_names_of_their_own():
    names = [cell.id for cell in CELLS]
    assert len(names) == len(set(names))
