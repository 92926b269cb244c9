"""A mistyped hint is no error, and is not left without a word either."""

from __future__ import annotations

import pytest
import torchcomms

from tests.harness.programs import forked

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
