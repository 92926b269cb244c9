"""What happens when a rank does not come: the others learn it in time, and their GPUs live on."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.gpu.programs import on_each_backend, on_gpus
from tests.gpu.test_graphs import captured
from tests.gpu.test_streams import total
from tests.harness.cases import Failures, assert_alive, check_context, refused

pytestmark = pytest.mark.worlds(device="cuda")
LIMIT_S = 2.0
# Far above the limit and the second that is allowed beyond it on a loaded machine, far below the
# default of minutes.
SOON_S = 20.0


def own_comm(context, **options):
    return context.new_comm(abort_process_on_timeout_or_error=False, **options)


def gpu_lives(context):
    """The device computes, and a new communicator works."""
    assert (torch.ones(1000) * 2).sum().item() == 2000
    fresh = own_comm(context)
    assert_alive(fresh)
    fresh.finalize()


def a_rank_does_not_call(context):
    failures = Failures()
    comm = own_comm(context)
    comm.barrier(False)
    torch.cuda.synchronize()
    began = time.monotonic()
    if context.rank != context.size - 1:
        tensor = torch.ones(1 << 16)
        work = comm.all_reduce(tensor, ReduceOp.SUM, True, timeout=LIMIT_S)
        work.wait()
        torch.cuda.synchronize()  # returns, because the operation has been ended
        with failures.case("soon"):
            assert time.monotonic() - began < SOON_S
        with failures.case("the next call"), refused(torchcomms.CommTimeout, "all_reduce", "2"):
            comm.barrier(False)
        with failures.case("aborted"):
            assert comm.is_aborted()
    context.meet("all have met it")
    if context.rank == context.size - 1:
        comm.abort()  # or it would leave in good order, with the others gone
    comm.finalize()
    with failures.case("afterwards"):
        gpu_lives(context)
    return failures.texts


def test_a_missing_rank_ends_the_operation_at_its_limit(world):
    check_context(world, a_rank_does_not_call)


def a_rank_does_not_replay(context):
    failures = Failures()
    comm = own_comm(context, hints={"graph_timeout_check_interval_ms": "100"})
    with failures.case("watched"):
        notes = comm.describe()["notes"]["replays of graphs"]
        assert notes == "timeouts of operations are watched"
    comm.barrier(False)
    torch.cuda.synchronize()
    tensor = torch.ones(1 << 16)
    graph = captured(lambda: comm.all_reduce(tensor, ReduceOp.SUM, False, timeout=LIMIT_S))
    for _ in range(3):  # what all of them replay is fine
        graph.replay()
    torch.cuda.synchronize()
    context.meet("replayed")
    if context.rank != context.size - 1:
        began = time.monotonic()
        graph.replay()
        torch.cuda.synchronize()  # returns, because the replay's operation has been ended
        with failures.case("soon"):
            assert LIMIT_S <= time.monotonic() - began < SOON_S
        # Kernels and links of ours end themselves, and know for whom they waited.
        words = ["all_reduce", "Graph monitor: collective TIMED OUT for graph"]
        if context.backend in ("ctran", "ncclx"):
            words = ["all_reduce", "its timeout", f"rank {context.size - 1}"]
        with failures.case("the next call"), refused(torchcomms.CommTimeout, *words):
            comm.barrier(False)
    context.meet("all have met it")
    if context.rank == context.size - 1:
        comm.abort()
    comm.finalize()
    with failures.case("afterwards"):
        gpu_lives(context)
    return failures.texts


def test_a_missing_rank_ends_a_replay_at_its_limit(world):
    check_context(world, a_rank_does_not_replay)


def aborted_from_outside(context):
    """One thread is stuck in a synchronise; another calls abort()."""
    failures = Failures()
    comm = own_comm(context)
    comm.barrier(False)
    torch.cuda.synchronize()
    if context.rank == 0:
        comm.all_reduce(torch.ones(1 << 16), ReduceOp.SUM, False)  # nobody else comes
        context.meet("called")
        stuck = threading.Event()

        def end():
            stuck.wait()
            comm.abort()

        helper = threading.Thread(target=end)
        helper.start()
        began = time.monotonic()
        stuck.set()
        torch.cuda.synchronize()
        helper.join()
        with failures.case("soon"):
            assert time.monotonic() - began < SOON_S
        # The other rank aborts as well, and may have been the first.
        with (
            failures.case("the next call"),
            refused((torchcomms.Aborted, torchcomms.PeerFailed)),
        ):
            comm.barrier(False)
    else:
        context.meet("called")
        comm.abort()
    context.meet("aborted")
    comm.finalize()
    with failures.case("afterwards"):
        gpu_lives(context)
    return failures.texts


def test_abort_wakes_a_host_that_synchronises(world):
    check_context(world, aborted_from_outside)


def another_rank_aborts(context):
    """What waits for it has failed: NCCL lets its kernels go on, with whatever is there."""
    failures, comm = Failures(), own_comm(context)
    comm.barrier(False)
    torch.cuda.synchronize()
    if context.rank == 0:
        context.meet("called")
        comm.abort()
    else:
        tensor = torch.ones(1 << 16)
        work = comm.all_reduce(tensor, ReduceOp.SUM, True, timeout=60.0)
        context.meet("called")
        work.wait()
        torch.cuda.synchronize()
        words = "rank 0 aborted the communicator"
        with failures.case("the next call"), refused(torchcomms.PeerFailed, words):
            comm.barrier(False)
        with failures.case("its work"), refused(torchcomms.PeerFailed, words):
            work.wait()
        with failures.case("aborted"):
            assert comm.is_aborted()
    context.meet("all have met it")
    comm.finalize()
    with failures.case("afterwards"):
        gpu_lives(context)
    return failures.texts


def test_what_waits_for_a_rank_that_aborts_has_failed(world):
    check_context(world, another_rank_aborts)


def twice(context):
    """One communicator fails; the other one of the same ranks goes on."""
    failures, good, bad = Failures(), own_comm(context), own_comm(context)
    if context.rank == 0:
        bad.abort()
    for _ in range(20):
        tensor = torch.full((1000,), context.rank + 1.0)
        good.all_reduce(tensor, ReduceOp.SUM, False)
        assert tensor.max().item() == total(context.size)
    if context.rank != 0:
        bad.abort()
    bad.finalize()
    good.finalize()
    return failures.texts


def test_another_communicator_is_not_touched(world):
    check_context(world, twice)


KILLED = """
    import os, signal, time
    from datetime import timedelta
    import torch, torchcomms
    from torchcomms import ReduceOp
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    comm = torchcomms.new_comm("{backend}", torch.device("cuda", rank), "world",
                               abort_process_on_timeout_or_error=False)
    tensor = torch.ones(1 << 16, device="cuda")
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    torch.cuda.synchronize()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:  # the first one, too, if the end is known by then
        comm.all_reduce(tensor, ReduceOp.SUM, False, timeout={limit})
        torch.cuda.synchronize()
        comm.barrier(False)
    except (torchcomms.CommTimeout, torchcomms.PeerFailed) as error:
        print(type(error).__name__, error)
    else:
        raise AssertionError("accepted")
    comm.finalize()
    assert torch.ones(10, device="cuda").sum().item() == 10
    print("alive")
"""


@on_each_backend
def test_a_killed_rank_takes_nobody_along(backend):
    *survivors, killed = on_gpus(KILLED.format(backend=backend, limit=LIMIT_S))
    assert killed.code == -9
    for finished in survivors:
        assert finished.expect_success().out.strip().endswith("alive")
