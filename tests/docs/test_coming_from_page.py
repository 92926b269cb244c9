"""The page for users of torch.distributed: no call of theirs is left out, none of ours invented."""

from __future__ import annotations

import inspect
import re

import torch.distributed as dist
import torchcomms
from torch.distributed import distributed_c10d
from torchcomms import objcol

from tests.docs.markdown import ROOT, code_spans, rows

PAGE = ROOT / "docs" / "start" / "coming_from_torch_distributed.md"
TABLES = [row for row in rows(PAGE) if list(row.cells) == ["torch.distributed", "instead"]] or [
    row for row in rows(PAGE) if "instead" in row.cells
]


def _spans(column: str) -> list[str]:
    return [span for row in TABLES for span in code_spans(row.cells[column])]


def test_every_function_of_torch_distributed_has_a_row() -> None:
    known = {re.split(r"\W", span)[0] for span in _spans("`torch.distributed`")}
    theirs = {
        name
        for name in distributed_c10d.__all__
        if name != "reduce_op"  # looking at it warns
        and inspect.isfunction(getattr(distributed_c10d, name, None))
    }
    assert len(theirs) > 50, "the list of functions is not where it was"
    assert theirs - known == set()


def test_every_row_names_something_that_torch_distributed_has_or_had() -> None:
    """A name that this torch lacks is one of those that newer ones have."""
    newer = {"all_gather_single", "reduce_scatter_single", "gather_single", "gather_into_tensor",
             "record_comm", "shrink_group", "get_backend_impl", "set_timeout",
             "_functional_collectives"}  # fmt: skip
    names = {re.split(r"\W", span)[0] for span in _spans("`torch.distributed`")} - {"tag"}
    invented = {name for name in names if not hasattr(dist, name)} - newer
    invented -= {name for name in names if hasattr(distributed_c10d, name)}
    assert invented <= {"nn", "device_mesh"}


def test_what_to_write_instead_exists() -> None:
    homes = {"comm": torchcomms.TorchComm, "objcol": objcol, "torchcomms": torchcomms,
             "batch": torchcomms.BatchSendRecv}  # fmt: skip
    calls = [
        (home, name)
        for span in _spans("instead")
        for home, name in re.findall(r"\b(comm|objcol|torchcomms|batch)\.(\w+)", span)
    ]
    assert len(calls) > 40
    missing = {
        f"{home}.{name}" for home, name in calls
        if not hasattr(homes[home], name) and name != "device_mesh"
    }  # fmt: skip
    assert missing == set()
