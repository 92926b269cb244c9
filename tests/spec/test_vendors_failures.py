"""Ranks over a vendor's library that are late, die or wait for ever: what the others are told."""

from __future__ import annotations

import signal

import pytest

from tests.harness.backends import NCCL, NCCLX
from tests.harness.programs import ranks

needs_nccl = pytest.mark.skipif(NCCL.missing() is not None, reason=str(NCCL.missing()))

SKIPS = """
    import os, torch, torchcomms
    from torch.distributed import TCPStore

    rank = int(os.environ["RANK"])
    store = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 3, rank == 0,
        wait_for_workers=False,
    )
    comm = torchcomms.new_comm("nccl", torch.device("cpu"), "skips", store=store,
                               abort_process_on_timeout_or_error=False)
    comm.barrier(False)
    if rank == 1:
        store.get("told")
    else:
        try:
            comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, False, timeout=1.0)
        except torchcomms.CommTimeout as error:
            if os.environ["TORCHCOMM_SIDE_CHANNEL"] == "1":
                assert error.peer == 1, error
                for words in (
                    "rank 1 is 1 collective behind, since number 2",
                    "rank 1: in no collective, after barrier() as number 1",
                    "ranks 0, 2: in all_reduce(float32, 10 elements, SUM) as number 2",
                ):
                    assert words in str(error), error
            else:
                words = "rank 1 has not called collective number 2, its last was 1"
                assert words in str(error), error
                assert f"called by rank {2 - rank} and this one" in str(error), error
        else:  # without a side channel the end of another rank's may let it go
            assert os.environ["TORCHCOMM_SIDE_CHANNEL"] == "0", "it did not wait for rank 1"
        if store.add("late", 1) == 2:
            store.set("told", "")
    if rank != 0:
        store.add("done", 1)
    else:
        store.get("told")
        while store.add("done", 0) < 2:
            pass
"""


# Ranks that keep no records see nothing of each other's, as ranks of other hosts: what they learn
# they learn by the side channel. Without that those of one host have each other's records.
OTHER_HOSTS = {"TORCHCOMM_RECORDER_DIR": "off", "TORCHCOMM_SIDE_CHANNEL": "1"}
RECORDS_ALONE = {"TORCHCOMM_SIDE_CHANNEL": "0"}
seen_by = pytest.mark.parametrize(
    "seen_by",
    [
        pytest.param({"TORCHCOMM_SIDE_CHANNEL": "1"}, id="one-host"),
        pytest.param(OTHER_HOSTS, id="other-hosts"),
        pytest.param(RECORDS_ALONE, id="records-alone"),
    ],
)


@needs_nccl
@seen_by
def test_a_timeout_names_who_has_not_called(free_port, seen_by):
    for rank in ranks(SKIPS, 3, free_port, **NCCL.environment, **seen_by):
        rank.expect_success()


DIES = """
    import os, signal, time, torch, torchcomms

    comm = torchcomms.new_comm("nccl", torch.device("cpu"), "dies",
                               abort_process_on_timeout_or_error=False)
    comm.barrier(False)
    if comm.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tells = os.environ["TORCHCOMM_SIDE_CHANNEL"] == "1"
    began = time.monotonic()
    try:
        comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, False)
        # Without a side channel the end of another rank's may let it go.
        assert not tells, "it did not wait for rank 1"
        comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, False)
        raise AssertionError("it waited for nobody")
    except torchcomms.PeerFailed as error:
        took = time.monotonic() - began
        assert error.peer == 1 or not tells, error
        assert f"rank {error.peer} has failed: its process" in str(error), error
        assert took < 10, took  # the limit is 10 minutes; on an idle machine it is 0.1 s
        assert (" on " in error.why) == tells, error
    assert comm.is_aborted()
    comm.finalize()
"""


@needs_nccl
@seen_by
def test_the_death_of_a_process_is_seen_at_once(free_port, seen_by):
    for rank, program in enumerate(ranks(DIES, 3, free_port, **NCCL.environment, **seen_by)):
        if rank != 1:
            program.expect_success()


UNSEEN = """
    import threading, torch, torchcomms

    comm = torchcomms.new_comm("nccl", torch.device("cpu"), "unseen")
    comm.register_abort_hook(lambda: print("last words", flush=True))
    work = comm.all_reduce(torch.ones(3), torchcomms.ReduceOp.SUM, True, timeout=0.2)
    threading.Event().wait()
"""


@needs_nccl
def test_a_timeout_that_nobody_notices_ends_the_process(free_port):
    variables = {"TORCHCOMM_ABORT_GRACE_SECONDS": "0.05", "TORCHCOMMS_STAND_IN": "hang=AllReduce:1"}
    (ended,) = ranks(UNSEEN, 1, free_port, **variables, **NCCL.environment)
    assert ended.code == -signal.SIGABRT, ended.err
    assert "Aborting process due to timeout" in ended.err
    assert "communicator 'unseen'" in ended.err
    assert "last words" in ended.out


# Its kernels' library is a pipe, whose other end is opened when it comes to load it.
DIES_BEFORE_ITS_KERNELS = """
    import os, signal, tempfile, threading, time, torch, torchcomms

    rank = int(os.environ["RANK"])
    if rank == 1:
        pipe = os.path.join(tempfile.mkdtemp(), "kernels")
        os.mkfifo(pipe)
        os.environ["TORCHCOMM_KERNELS_LIBRARY"] = pipe

        def end():
            open(pipe, "wb")
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=end).start()
    began = time.monotonic()
    try:
        torchcomms.new_comm("ncclx", torch.device("cpu"), "dies")
    except torchcomms.PeerFailed as error:
        assert error.peer >= 0 and error.peer != rank, error
        took = time.monotonic() - began
        assert took < 60, took  # the limit is 10 minutes; on an idle machine it is 1 s
    else:
        raise AssertionError("it did not wait for rank 1")
"""


@needs_nccl
def test_the_death_of_a_rank_that_loads_its_kernels_is_seen_at_once(free_port):
    variables = {**NCCLX.environment, "TORCHCOMM_SIDE_CHANNEL": "1"}
    for rank, program in enumerate(ranks(DIES_BEFORE_ITS_KERNELS, 3, free_port, **variables)):
        if rank != 1:
            program.expect_success()
