"""An asynchronous operation of `ctran` failed, and nobody waits for it."""

from __future__ import annotations

import signal

import pytest
import torchcomms

from tests.harness.ports import free_port
from tests.harness.programs import Finished, ranks

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("ctran"), reason="needs backend ctran"
)
PROGRAM = """
    import sys, threading
    import torch, torchcomms
    from torchcomms import ReduceOp

    comm = torchcomms.new_comm("ctran", torch.device("cpu"), "unseen", timeout=60.0)
    comm.register_abort_hook(lambda: print("last words", flush=True))
    rank, tensor = comm.get_rank(), torch.ones(3)
    if rank == 1:
        sys.exit()
    work = comm.all_reduce(tensor, ReduceOp.SUM, True)
    never = threading.Event()
    {then}
"""


def survivor(then: str, **variables: str) -> Finished:
    return ranks(PROGRAM.format(then=then), 2, free_port(), **variables)[0]


def test_a_failure_that_nobody_notices_ends_the_process():
    ended = survivor("never.wait()", TORCHCOMM_ABORT_GRACE_SECONDS="0.05")
    assert ended.code == -signal.SIGABRT, ended.err
    assert "Aborting process due to error" in ended.err
    assert "communicator 'unseen'" in ended.err
    assert ended.out.count("last words") == 1


def test_one_that_was_met_does_not():
    then = """try:
        work.wait()
    except torchcomms.PeerFailed:
        never.wait(1.0)  # the grace is long over
        print("told")"""
    ended = survivor(then, TORCHCOMM_ABORT_GRACE_SECONDS="0.5")
    assert ended.code == 0, ended.err
    assert "told" in ended.out


def test_the_option_turns_it_off():
    then = """while not comm.is_aborted():
        pass
    never.wait(1.0)  # the grace is long over
    print("alive")"""
    ended = survivor(then, TORCHCOMM_ABORT_GRACE_SECONDS="0.05", TORCHCOMM_ABORT_ON_ERROR="0")
    assert ended.code == 0, ended.err
    assert "alive" in ended.out
