"""Windows over a vendor's library: what is said of that library alone."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp, TorchCommWinAccessType

from tests.harness.backends import NCCL
from tests.harness.cases import Failures, assert_alive, check_context, finish, refused
from tests.harness.programs import forked
from tests.harness.windows import LIBRARIES, supports_windows, zeros_for_window

pytestmark = pytest.mark.worlds(backends=LIBRARIES)
SHORT_S = 0.3


@pytest.fixture(autouse=True)
def _the_library_has_windows(request):
    if "world" in request.fixturenames:
        world = request.getfixturevalue("world")
        if not all(world.run(supports_windows)):
            pytest.skip("the vendor's library is too old for windows")


def around(comm):
    rank, size = comm.get_rank(), comm.get_size()
    return (rank + 1) % size, (rank - 1) % size


def large_puts(context):
    """From anywhere: through pieces of memory of the library's; from the window itself: at once."""
    comm, failures = context.comm, Failures()
    following, before = around(comm)
    numel = 5 << 20  # of 4 bytes, which is more than goes at once
    mine = zeros_for_window(comm, 2 * numel, dtype=torch.int32)
    window = comm.new_window(mine)
    for async_op in (False, True):
        with failures.case("from anywhere", async_op):
            data = torch.arange(numel, dtype=torch.int32, device=context.device) + context.rank
            put = window.put(data, following, numel, async_op)
            window.signal(following, async_op)
            del data
            window.wait_signal(before, False)
            finish(put, async_op)
            expected = torch.arange(numel, dtype=torch.int32, device=context.device) + before
            assert torch.equal(mine[numel:], expected)
        comm.barrier(False)
    with failures.case("from the window"):
        mine[:numel] = context.rank + 7
        window.put(mine[:numel], following, numel, False)
        window.signal(following, False)
        window.wait_signal(before, False)
        assert bool((mine[numel:] == before + 7).all())
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_puts_of_any_size_come_from_anywhere(world):
    check_context(world, large_puts)


def others_memory(context):
    comm, failures = context.comm, Failures()
    mine = zeros_for_window(comm, 4)
    window = comm.new_window(mine)
    for owner in range(comm.get_size()):
        with failures.case(owner):
            kind = TorchCommWinAccessType.WIN_ACCESS_TYPE_SEPARATE
            assert window.get_attr(owner).access_type == kind
            if owner == context.rank:
                assert window.map_remote_tensor(owner) is mine
                assert window.get_tensor(owner, [1], torch.int64, 1).shape == (1,)
                continue
            with refused(torchcomms.Unsupported, f"rank {owner}", "SEPARATE"):
                window.map_remote_tensor(owner)
            with refused(torchcomms.Unsupported, f"rank {owner}", "SEPARATE"):
                window.get_tensor(owner, [2], torch.float32, 0)
    with failures.case("slots"), refused(torchcomms.Unsupported):
        window.signal(0, 1, 0, False)
    window.tensor_deregister()
    return failures.texts


def test_memory_of_others_is_reached_by_puts_alone(world):
    check_context(world, others_memory)


def wrong_memory(context):
    """What one rank has wrong is an error of all, at once."""
    comm, failures, last = context.comm, Failures(), context.size - 1
    good = zeros_for_window(comm, 4)
    plain = torch.zeros(4, device=context.device)
    invalid = torchcomms.InvalidArgument
    case = failures.case("not the library's")
    with case, refused(invalid, f"rank {last}", "get_mem_allocator"):
        comm.new_window(plain if context.rank == last else good)
    with failures.case("their own"):
        sizes = comm.new_window(zeros_for_window(comm, 4 + context.rank))
        for owner in range(comm.get_size()):
            with refused(torchcomms.OutOfRange, "put", f"rank {owner}", f"{4 * (4 + owner)} bytes"):
                sizes.put(plain, owner, owner + 1, False)
        sizes.tensor_deregister()
    window = comm.new_window(good)
    with failures.case("own signals"), refused(torchcomms.Unsupported, "wait_signal", "own"):
        window.wait_signal(context.rank, True)
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_wrong_memory_is_refused_on_all_ranks_alike(world):
    check_context(world, wrong_memory)


def waits_first(context):
    """Waits of every rank for every other, before any signal: none may hold a signal up."""
    comm = context.comm
    others = [peer for peer in range(comm.get_size()) if peer != context.rank]
    window = comm.new_window(zeros_for_window(comm, comm.get_size(), dtype=torch.int64))
    waits = [window.wait_signal(peer, True) for peer in others]
    for peer in others:
        value = torch.tensor([100 + context.rank], device=context.device)
        window.put(value, peer, context.rank, False)
        window.signal(peer, False)
    total = torch.ones(1, device=context.device)
    comm.all_reduce(total, ReduceOp.SUM, False)
    for work in waits:
        finish(work, True)
    expected = [0 if peer == context.rank else 100 + peer for peer in range(comm.get_size())]
    assert window.get_tensor().tolist() == expected
    assert total.item() == comm.get_size()
    window.tensor_deregister()
    return []


def test_waits_that_come_first_hold_nothing_up(world):
    check_context(world, waits_first)


def again(context):
    """Windows come and go, each with its signals."""
    comm = context.comm
    following, before = around(comm)
    mine = zeros_for_window(comm, 8)
    window = comm.new_window()
    for turn in range(3):
        window.tensor_register(mine)
        window.signal(following, False)  # of which nobody hears again
        window.put(torch.full((8,), float(turn), device=context.device), following, 0, False)
        window.signal(following, False)
        for _ in range(2):
            window.wait_signal(before, False)
        assert bool((mine == turn).all())
        window.signal(following, False)
        comm.barrier(False)
        window.tensor_deregister()
    return []


def test_what_was_not_waited_for_is_gone_with_its_window(world):
    check_context(world, again)


def late(context):
    comm, failures = context.new_comm(abort_process_on_timeout_or_error=False), Failures()
    window = comm.new_window(zeros_for_window(comm, 4))
    comm.barrier(False)
    if context.rank == 0:
        wait = lambda: window.wait_signal(1, False, timeout=SHORT_S)  # noqa: E731
        with failures.case("wait"), refused(torchcomms.CommTimeout, "wait_signal", "0.3 s"):
            wait()
        with failures.case("for good"), refused(torchcomms.CommTimeout):
            window.put(torch.zeros(1), 0, 0, False)
        assert comm.is_aborted()
    context.meet("window_of_library_late")
    if context.rank != 0:
        comm.abort()
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(sizes=(2, 3, 4), device="cpu")
def test_a_wait_has_a_limit_and_its_end_ends_the_communicator(world):
    check_context(world, late)


def test_a_library_that_is_too_old_is_named_with_the_version_it_would_need():
    if reason := NCCL.missing():
        pytest.skip(reason)
    ((variable, library),) = NCCL.environment.items()
    old = library.replace(".so", "_old.so")
    forked(f"""
        import os, torch, torchcomms
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        os.environ[{variable!r}] = {old!r}
        comm = torchcomms.new_comm("nccl", torch.device("cpu"), "old")
        assert not comm.describe()["capabilities"]["windows"]
        for ask in (comm.new_window, lambda: comm.window_allocate(8)):
            try:
                ask()
            except torchcomms.Unsupported as error:
                for words in ("2.29.0", "2.10.3", "nccl", "window"):
                    assert words in str(error), error
            else:
                raise AssertionError("it was accepted")
        comm.barrier(False)
        comm.finalize()
    """).expect_success()
