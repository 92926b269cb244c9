"""Ranks that call different things, on backends whose library does not compare them.

They are told by the side channel: while the library waits, or with check_calls before anything
begins.
"""

from __future__ import annotations

import pytest

from tests.harness.backends import NCCL
from tests.harness.programs import ranks

needs_nccl = pytest.mark.skipif(NCCL.missing() is not None, reason=str(NCCL.missing()))
ENVIRONMENT = {
    # As ranks of different hosts; and a library that waits where ranks disagree, as NCCL does.
    "nccl": {**NCCL.environment, "TORCHCOMM_RECORDER_DIR": "off", "TORCHCOMMS_STAND_IN": "blind=1"},
    "gloo": {"TORCHCOMM_RECORDER_DIR": "off"},
}

DISAGREE = """
    import os, time, torch, torchcomms
    from tests.harness.odd_calls import calls

    backend = os.environ["BACKEND"]
    comm = torchcomms.new_comm(backend, torch.device("cpu"), "disagree",
                               abort_process_on_timeout_or_error=False)
    rank, size = comm.get_rank(), comm.get_size()
    comm.barrier(False)
    began = time.monotonic()
    many, one = calls(comm, os.environ["ODD"])
    try:
        work = one() if rank == size - 1 else many()
        if work is not None:
            work.wait()
        comm.barrier(False)  # whoever had what it called for learns of it here
    except torchcomms.Mismatch as error:
        took = time.monotonic() - began
        assert took < 10, took  # the limit is 10 minutes; on an idle machine it is 0.2 s
        assert f"rank {size - 1} calls " in str(error), error
        assert error.peer == (size - 1 if size > 2 else -1), error
        assert error.culprits == ((size - 1,) if size > 2 else ()), error
    else:
        raise AssertionError("nobody found that the ranks disagree")
    assert comm.is_aborted() == (backend != "gloo")
    comm.finalize()
"""


def expect_mismatch(backend, odd, size, port, **variables):
    variables |= {"BACKEND": backend, "ODD": odd, **ENVIRONMENT[backend]}
    for rank in ranks(DISAGREE, size, port, **variables):
        rank.expect_success()


@needs_nccl
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("odd", ["count", "dtype", "operation", "root"])
def test_they_are_told_while_the_library_waits(free_port, odd, size):
    expect_mismatch("nccl", odd, size, free_port)


@needs_nccl
@pytest.mark.parametrize("odd", ["count", "root", "reduction"])
def test_with_check_calls_they_are_told_before_anything_begins(free_port, odd):
    expect_mismatch("nccl", odd, 3, free_port, TORCHCOMM_CHECK_CALLS="1")


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("odd", ["operation", "asynchronous", "root"])
def test_they_are_told_while_gloo_waits(free_port, odd, size):
    expect_mismatch("gloo", odd, size, free_port)


# Gloo would end the process for the first two, and add up nonsense for the last one.
@pytest.mark.parametrize("odd", ["count", "dtype", "reduction"])
def test_with_check_calls_they_are_told_before_gloo_begins(free_port, odd):
    expect_mismatch("gloo", odd, 3, free_port, TORCHCOMM_CHECK_CALLS="1")
