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
        "ctran::registered": "false", "ctran::single_cpy": "true",
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
    assert len(warnings) == 3
    near = [line for line in warnings if "hint ctran::single_cpy " in line]
    assert near[0].endswith("; did you mean ctran::single_copy?")
    warnings.remove(near[0])
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


CALLS = """
    import torch, torchcomms
    comm = torchcomms.new_comm(BACKEND, torch.device("cpu"), "mistyped_calls")
    for _ in range(3):
        comm.barrier(False, hints={"batch_invariants": "1", "fake::worlds": "1", "fake::size": "1"})
        comm.barrier(False, hints={"elsewhere::algo": "ring", "ncclx::minCTAs": "1", "": ""})
    comm.finalize()
"""


@pytest.mark.parametrize("backend", ["gloo", "ctran"])
def test_mistyped_keys_of_a_call_are_told_once(backend):
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"needs backend {backend}")
    assert sorted(told(CALLS.replace("BACKEND", repr(backend)))) == [
        "batch_invariants is unknown and has no effect; did you mean batch_invariant?",
        "fake::worlds is unknown and has no effect; backend 'fake' has fake::rank, fake::size",
    ]


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
    assert lines[3].startswith("unheard_of: known hints without a prefix: batch_invariant, ")


def documented():
    text = (ROOT / "docs/reference/hints.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


def test_every_documented_key_is_known():
    # Not `ncclx::<x>`, which stands for many, what ncclx refuses, and what is comm_dump_all()'s.
    no_hint = ("<", "comm_dump::", "ncclx::commDesc", "ncclx::splitGroupRanks")
    keys = {key for key in documented() if not any(part in key for part in no_hint)}
    assert {"check_calls", "blocking", "cga_cluster_size", "ncclx::algorithm"} <= keys
    hints = dict.fromkeys(keys - {"fake::rank", "fake::size"}, "None")
    program = f"""
    import torch, torchcomms
    torchcomms.new_comm("fake", torch.device("cpu"), "known", hints={hints!r})
    """
    assert told(program) == []


@pytest.mark.parametrize("prefix", ["", "ctran::", "ncclx::", "nccl::", "fake::"])
def test_every_known_key_is_documented(prefix):
    program = f"""
    import torch, torchcomms
    hints = {{"{prefix}unheard_of_anywhere": "1"}}
    torchcomms.new_comm("fake", torch.device("cpu"), "listed", hints=hints)
    """
    (line,) = told(program)
    known = re.split(" without a prefix: | has ", line.partition(";")[2])[1].split(", ")
    assert known
    assert set(known) <= documented()


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
