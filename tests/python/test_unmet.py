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
        comm.finalize()
        print("told")"""
    ended = survivor(then, TORCHCOMM_ABORT_GRACE_SECONDS="0.5")
    assert ended.code == 0, ended.err
    assert "told" in ended.out


GROUP = """
    import sys, threading
    import torch, torchcomms
    import torch.distributed as dist

    dist.init_process_group("ctran")
    if dist.get_rank() == 1:
        sys.exit()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    try:
        {meet}
    except RuntimeError as error:
        assert "rank 1 has failed" in str(error)
    threading.Event().wait(1.0)  # the grace is long over
    dist.destroy_process_group()
    print("told")
"""


@pytest.mark.parametrize(
    "meet",
    [
        "work.get_future().wait()",
        "work.get_future().then(lambda done: done.value()).wait()",
        "while not work.is_completed() or work.exception() is None: pass",
        "while not work.is_completed() or work.is_success(): pass",
    ],
)
def test_one_that_a_work_of_a_process_group_told_of_does_not(meet):
    ended = ranks(GROUP.format(meet=meet), 2, free_port(), TORCHCOMM_ABORT_GRACE_SECONDS="0.5")[0]
    assert ended.code == 0, ended.err
    assert "told" in ended.out


PARTY = """
    import os, threading
    import torch, torchcomms

    comm = torchcomms.new_comm(
        "ctran", torch.device("cpu"), "party", timeout=60.0, enable_reconfigure=True
    )
    comm.reconfigure(1, [comm.get_init_handle()]).wait()
    child = comm.split([0], "child")
    grandchild = child.split([0], "grandchild")
    tensor, never = torch.ones(3), threading.Event()
    works = [one.recv(tensor, 0, True) for one in (comm, child, grandchild)]
    comm.reconfigure(2, [comm.get_init_handle()]).wait()
    assert not any(work.is_completed() for work in works)
    never.wait(1.0)  # the grace is long over
    print("alive")
"""


def test_what_reconfigure_ends_does_not():
    """Neither in the communicator nor in those that were split from it."""
    ended = ranks(PARTY, 1, free_port(), TORCHCOMM_ABORT_GRACE_SECONDS="0.05")[0]
    assert ended.code == 0, ended.err
    assert "alive" in ended.out


def test_the_option_turns_it_off_and_finalize_raises_it():
    then = """while not comm.is_aborted():
        pass
    never.wait(1.0)  # the grace is long over
    for error in torchcomms.PeerFailed, torchcomms.CommFinalized:
        try:
            comm.finalize()
            sys.exit("it did not raise")
        except error:
            pass
    print("alive")"""
    ended = survivor(then, TORCHCOMM_ABORT_GRACE_SECONDS="0.05", TORCHCOMM_ABORT_ON_ERROR="0")
    assert ended.code == 0, ended.err
    assert "alive" in ended.out
