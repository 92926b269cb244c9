"""The page for users of torch.distributed names no call of ours that there is not."""

from __future__ import annotations

import re

import torchcomms
from torchcomms import objcol

from tests.docs.markdown import ROOT, code_spans, rows

PAGE = ROOT / "docs" / "start" / "coming_from_torch_distributed.md"


def test_what_to_write_instead_exists() -> None:
    homes = {"comm": torchcomms.TorchComm, "objcol": objcol, "torchcomms": torchcomms,
             "batch": torchcomms.BatchSendRecv}  # fmt: skip
    calls = [
        (home, name)
        for row in rows(PAGE)
        for span in code_spans(row.cells.get("instead", ""))
        for home, name in re.findall(r"\b(comm|objcol|torchcomms|batch)\.(\w+)", span)
    ]
    assert len(calls) > 40
    missing = {
        f"{home}.{name}" for home, name in calls
        if not hasattr(homes[home], name) and name != "device_mesh"
    }  # fmt: skip
    assert missing == set()
