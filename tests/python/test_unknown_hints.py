"""A mistyped hint is no error, and is not left without a word either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torchcomms

from tests.harness.programs import forked

ROOT = Path(__file__).parents[2]

PROGRAM = """
    import torch, torchcomms
    from torchcomms import ReduceOp
    comm = torchcomms.new_comm("ctran", torch.device("cpu"), "mistyped", hints={
        "ctran::algo": "ring", "ctran::transport": "shm", "elsewhere::algo": "ring",
        "ctran::registered": "false",
    })
    for _ in range(3):
        comm.all_reduce(torch.ones(4), ReduceOp.SUM, False, hints={"ctran::chunk": "8"})
        comm.all_reduce(torch.ones(4), ReduceOp.SUM, False, hints={"ctran::chunk_bytes": "8"})
    comm.finalize()
"""


@pytest.mark.skipif(not torchcomms.is_backend_built("ctran"), reason="needs backend ctran")
def test_each_unknown_key_of_the_backend_is_told_once_with_those_there_are():
    finished = forked(PROGRAM, TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1")
    finished.expect_success()
    warnings = [line for line in finished.err.splitlines() if "hint" in line]
    assert len(warnings) == 2
    for line, key in zip(warnings, ("ctran::algo", "ctran::chunk"), strict=True):
        assert f"hint {key} is unknown and has no effect; backend 'ctran' has " in line
        assert "ctran::algorithm, ctran::chunk_bytes" in line


MISTYPED = """
    import torch, torchcomms
    for name in ("first", "second"):
        comm = torchcomms.new_comm(BACKEND, torch.device("cpu"), name, hints={
            "check_call": "true", "maxCTA": "8", "elsewhere::algo": "ring", "unheard_of": "1",
        })
        comm.split([0], "child", hints={"hostnam": "127.0.0.1"}).finalize()
        comm.finalize()
"""


def told(program):
    finished = forked(program, TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1")
    finished.expect_success()
    return [line.partition(": hint ")[2] for line in finished.err.splitlines() if "hint" in line]


@pytest.mark.parametrize("backend", ["gloo", "ctran", "fake"])
def test_a_mistyped_key_without_a_prefix_is_told_with_the_one_that_was_meant(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    lines = told(MISTYPED.replace("BACKEND", repr(backend)))
    lines = sorted(line.replace(" is unknown and has no effect; ", ": ") for line in lines)
    assert lines[:3] == [
        "check_call: did you mean check_calls?",
        "hostnam: did you mean hostname?",
        "maxCTA: did you mean maxCTAs?",
    ]
    assert len(lines) == 4
    assert lines[3].startswith("unheard_of: without a prefix there are batch_invariant, blocking, ")


def test_every_documented_key_without_a_prefix_is_known():
    text = (ROOT / "docs/reference/hints.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    contract = (ROOT / "docs/reference/contract.md").read_text().partition("## Hint keys")[2]
    rows += [
        line.split("|")[1]
        for line in contract.partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    keys = {key for row in rows for key in re.findall(r"`([^`]+)`", row) if "::" not in key}
    assert {"check_calls", "blocking", "cga_cluster_size", "lazySetupChannels"} <= keys
    hints = dict.fromkeys(keys, "None")
    program = f"""
    import torch, torchcomms
    torchcomms.new_comm("fake", torch.device("cpu"), "known", hints={hints!r})
    """
    assert told(program) == []


@pytest.mark.parametrize("group", ["ProcessGroupNCCL", "ProcessGroupGloo"])
def test_what_torch_writes_of_its_options_is_known(group):
    kind = getattr(torch.distributed, group, None)
    if kind is None:
        pytest.skip(f"this torch has no {group}")
    options = getattr(kind, "Options", None) or kind._Options
    keys = [name for name in dir(options) if not name.startswith("_")]
    if group == "ProcessGroupNCCL":
        config = options().config
        keys += [name for name in dir(config) if not callable(getattr(config, name))]
    hints = {key: "None" for key in keys if not key.startswith("_")}
    program = f"""
    import torch, torchcomms
    torchcomms.new_comm("fake", torch.device("cpu"), "torchs", hints={hints!r})
    """
    assert told(program) == []
