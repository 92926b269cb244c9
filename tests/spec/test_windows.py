"""Windows: memory of every rank that the others write, and signals that say that they have.

Over shared memory and over TCP: the rows of `ctran`. What a window is in decides how it is reached:
plain memory, a tensor after share_memory_(), and the window's own from window_allocate(). Over a
vendor's library: in that library's memory, which puts alone reach.
"""

from __future__ import annotations

import contextlib
import copy
import random
import time

import pytest
import torch
import torchcomms
from torchcomms import SignalCmpOp, TorchCommWinAccessType

from tests.harness.cases import (
    Failures,
    assert_alive,
    check_context,
    finish,
    refused,
    settle_device,
)
from tests.harness.windows import is_over_library, supports_windows, zeros_for_window

pytestmark = pytest.mark.worlds(backends=("ctran", "nccl", "nccl-lazy"))
several = pytest.mark.worlds(sizes=(2, 3, 4))
mapped = pytest.mark.worlds(backends=("ctran",))
mapped_by_several = pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4))
UNIFIED = TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
SEPARATE = TorchCommWinAccessType.WIN_ACCESS_TYPE_SEPARATE
MEMORY = ("plain", "shared", "allocated")
SHORT_S = 0.3


@pytest.fixture(autouse=True)
def _the_library_has_windows(world):
    if world.backend.vendor is not None and not all(world.run(supports_windows)):
        pytest.skip("the vendor's library is too old for windows")


def window_of(comm, kind, numel, dtype=torch.float32):
    """A window of zeros in memory of that kind, and the tensor that is this rank's part."""
    if kind == "allocated":
        window = comm.window_allocate(numel * dtype.itemsize)
        return window, window.get_tensor().view(dtype)
    tensor = zeros_for_window(comm, numel, dtype=dtype)
    if kind == "shared":
        tensor.share_memory_()
    return comm.new_window(tensor), tensor


def around(comm):
    rank, size = comm.get_rank(), comm.get_size()
    return (rank + 1) % size, (rank - 1) % size


def memory_of(comm):
    """The kinds of memory that differ; a library has one of its own."""
    return ("plain", "allocated") if is_over_library(comm) else MEMORY


def is_tcp(context):
    return dict(context.row.hints).get("ctran::transport") == "tcp"


def puts_with_signals(context):
    comm, failures = context.comm, Failures()
    following, before = around(comm)
    for kind in memory_of(comm):
        for dtype in (torch.float32, torch.int8, torch.bfloat16, torch.complex128, torch.bool):
            for async_op in (False, True):
                with failures.case(kind, dtype, async_op):
                    window, mine = window_of(comm, kind, 12, dtype)
                    data = torch.arange(5).remainder(2 + comm.get_rank()).to(dtype)
                    put = window.put(data, following, 3, async_op)
                    signal = window.signal(following, async_op)
                    window.wait_signal(before, False)
                    expected = torch.zeros(12, dtype=dtype)
                    expected[3:8] = torch.arange(5).remainder(2 + before).to(dtype)
                    assert torch.equal(mine, expected), mine
                    finish(put, async_op)
                    finish(signal, async_op)
                    window.tensor_deregister()
    return failures.texts


def test_a_put_is_seen_with_the_signal_after_it(world):
    check_context(world, puts_with_signals)


def many_rounds(context, kind):
    """Each round another size at another place; the reader says when it may be overwritten."""
    comm = context.comm
    rank, size = comm.get_rank(), comm.get_size()
    following, before = around(comm)
    numel = 300_000
    window, mine = window_of(comm, kind, numel, torch.int64)

    def parts(writer):
        source = random.Random(writer)
        for number in range(120):
            count = source.choice((1, 7, 500, 4096, 70_000, 280_000))
            yield number, count, source.randrange(numel - count)

    for (number, count, offset), (_, coming, at) in zip(parts(rank), parts(before), strict=True):
        data = torch.arange(count) * size + rank + number
        work = window.put(data, following, offset, number % 2 == 0)
        window.signal(following, number % 3 == 0)
        del data
        window.wait_signal(before, False)
        wanted = torch.arange(coming) * size + before + number
        assert torch.equal(mine[at : at + coming], wanted), f"round {number}"
        work.wait()
        window.signal(before, False)
        window.wait_signal(following, False)
    window.tensor_deregister()
    assert_alive(comm)
    return []


@mapped_by_several
@pytest.mark.parametrize("kind", MEMORY)
def test_whoever_sees_the_signal_sees_all_of_the_put(world, kind):
    check_context(world, many_rounds, kind)


@pytest.mark.worlds(backends=("nccl", "nccl-lazy"), sizes=(2, 3, 4))
def test_whoever_sees_the_signal_sees_all_of_what_a_library_puts(world):
    check_context(world, many_rounds, "plain")


def signals_are_counted(context):
    comm = context.comm
    window, _ = window_of(comm, "plain", 1)
    following, before = around(comm)
    waits = [window.wait_signal(before, True) for _ in range(2)]
    for _ in range(5):
        window.signal(following, False)
    for _ in range(3):
        window.wait_signal(before, False)
    for work in waits:
        finish(work, True)
    comm.barrier(False)
    late = window.wait_signal(before, True)
    comm.barrier(False)
    assert not late.is_completed(), "there were five signals, and five waits before this one"
    comm.barrier(False)
    window.signal(following, False)
    finish(late, True)
    window.tensor_deregister()
    return []


def test_each_wait_takes_one_signal(world):
    check_context(world, signals_are_counted)


def live_views(context):
    comm, failures = context.comm, Failures()
    rank, size = comm.get_rank(), comm.get_size()
    following, before = around(comm)
    shape = lambda owner: (owner + 2, 3)  # noqa: E731
    dtype = lambda owner: torch.float64 if owner % 2 else torch.int32  # noqa: E731
    mine = torch.full(shape(rank), rank, dtype=dtype(rank)).share_memory_()
    window = comm.new_window(mine)
    for owner in range(size):
        with failures.case("attribute", owner):
            reachable = owner == rank or not is_tcp(context)
            expected = UNIFIED if reachable else SEPARATE
            assert window.get_attr(owner).access_type == expected
            if not reachable:
                with refused(torchcomms.Unsupported, f"rank {owner}", "SEPARATE"):
                    window.map_remote_tensor(owner)
                continue
            view = window.map_remote_tensor(owner)
            assert (tuple(view.shape), view.dtype) == (shape(owner), dtype(owner))
            assert bool((view == owner).all())
    assert window.map_remote_tensor(rank) is mine
    comm.barrier(False)
    if not is_tcp(context):
        view = window.map_remote_tensor(following)
        view[0] = 40 + rank
        window.signal(following, False)
        window.wait_signal(before, False)
        with failures.case("written by a store"):
            assert mine[0].tolist() == [40 + before] * 3
        mine[1] = 70 + rank  # and the other way round: the owner's stores are seen in the view
        window.signal(before, False)
        window.wait_signal(following, False)
        with failures.case("read by a load"):
            assert view[1].tolist() == [70 + following] * 3
        comm.barrier(False)
    window.tensor_deregister()
    return failures.texts


@mapped
def test_memory_of_this_host_is_mapped_and_alive(world):
    check_context(world, live_views)


def plain_memory(context):
    comm = context.comm
    window, mine = window_of(comm, "plain", 4)
    for owner in range(comm.get_size()):
        if owner == comm.get_rank():
            assert window.get_attr(owner).access_type == UNIFIED
            assert window.map_remote_tensor(owner) is mine
        else:
            assert window.get_attr(owner).access_type == SEPARATE
            with refused(torchcomms.Unsupported, f"rank {owner}"):
                window.map_remote_tensor(owner)
    window.tensor_deregister()
    return []


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), device="cpu")
def test_memory_of_its_own_is_reached_by_operations_alone(world):
    check_context(world, plain_memory)


def shared_without_descriptors(context):
    """Under this strategy torch keeps no descriptor of what it shares."""
    comm = context.comm
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        window, mine = window_of(comm, "shared", 1000)
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    mine.fill_(comm.get_rank())
    comm.barrier(False)
    for owner in range(comm.get_size()):
        if owner == comm.get_rank() or not is_tcp(context):
            assert window.get_attr(owner).access_type == UNIFIED
            assert window.map_remote_tensor(owner).tolist() == [owner] * 1000
    comm.barrier(False)
    window.tensor_deregister()
    return []


@mapped
def test_memory_that_torch_shares_by_name_is_mapped(world):
    check_context(world, shared_without_descriptors)


def part_of_a_shared_tensor(context):
    """A window may begin anywhere in shared memory; nothing beside it is touched."""
    comm = context.comm
    following, before = around(comm)
    whole = zeros_for_window(comm, 3000)
    if not is_over_library(comm):
        whole.share_memory_()
    window = comm.new_window(whole[1001:1011])
    window.put(torch.full((10,), float(comm.get_rank() + 1)), following, 0, False)
    window.signal(following, False)
    window.wait_signal(before, False)
    expected = torch.zeros(3000)
    expected[1001:1011] = before + 1
    assert torch.equal(whole, expected)
    if not is_tcp(context) and not is_over_library(comm):
        assert window.map_remote_tensor(following).shape == (10,)
    window.tensor_deregister()
    return []


def test_a_window_may_be_a_part_of_a_tensor(world):
    check_context(world, part_of_a_shared_tensor)


def idle_owner(context):
    """The owner is outside of the library while the others write into its memory."""
    comm = context.comm
    store = context.store("idle_owner", own_connection=True)
    window, mine = window_of(comm, "plain", 100_000, torch.int32)
    comm.barrier(False)
    if context.rank == 0:
        store.wait([str(rank) for rank in range(1, context.size)])
        for rank in range(1, context.size):
            assert bool((mine[rank * 20_000 : (rank + 1) * 20_000] == rank).all())
            window.wait_signal(rank, False, timeout=10.0)
    else:
        data = torch.full((20_000,), context.rank, dtype=torch.int32)
        window.put(data, 0, context.rank * 20_000, False, timeout=10.0)
        window.signal(0, False, timeout=10.0)
        settle_device()
        store.set(str(context.rank), "written")
    comm.barrier(False)
    window.tensor_deregister()
    return []


@mapped_by_several
def test_an_owner_that_does_something_else_is_written_to(world):
    check_context(world, idle_owner)


def sizes_and_properties(context):
    comm, failures, rank = context.comm, Failures(), context.rank
    window = comm.new_window()
    with failures.case("nothing registered"):
        assert window.get_size() == 0
        assert window.get_tensor() is None
        assert window.shape == []
        assert window.dtype is torch.float32
        assert window.device == context.device
    tensor = zeros_for_window(comm, rank, 3, dtype=torch.float16)  # rank 0 has nothing
    window.tensor_register(tensor)
    with failures.case("registered"):
        assert window.get_size() == tensor.nbytes
        assert window.get_tensor() is tensor
        assert window.dtype is torch.float16
        assert window.shape == [rank, 3]
        assert window.get_device() == window.device == context.device
    with failures.case("empty puts"):
        for peer in range(comm.get_size()):
            window.put(torch.zeros(0, dtype=torch.float16), peer, 0, False)
    window.tensor_deregister()
    with failures.case("a window is used again, without keeping its tensor"):
        window.tensor_register(tensor, owning=False)
        assert window.get_tensor() is None
        assert window.get_size() == tensor.nbytes
        assert torch.equal(window.map_remote_tensor(rank), tensor)
        window.tensor_deregister()
        assert window.get_size() == 0
        assert window.shape == []
    with failures.case("allocated"):
        on_host = context.device.type == "cpu" or not is_over_library(comm)
        empty = comm.window_allocate(0, cpu_buf=on_host, signal_size=1)
        assert empty.get_size() == 0
        empty.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_sizes_differ_and_properties_tell(world):
    check_context(world, sizes_and_properties)


def puts_and_the_targets_size(context):
    comm, failures, rank, size = context.comm, Failures(), context.rank, context.size
    last, end = size - 1, 4 * size
    tensor = zeros_for_window(comm, 4 * (rank + 1))  # the last rank's is the largest
    window = comm.new_window(tensor)
    if rank == 0:
        with failures.case("the end of a larger window"):
            window.put(torch.ones(2), last, end - 2, False)
            with refused(torchcomms.OutOfRange, "put", f"{4 * end} bytes", f"rank {last}", end - 1):
                window.put(torch.ones(2), last, end - 1, False)
        window.signal(last, False)
    if rank == last:
        window.wait_signal(0, False)
        with failures.case("the put has arrived"):
            assert torch.equal(tensor[-3:], torch.tensor([0.0, 1.0, 1.0])), tensor
        with (
            failures.case("beyond a smaller window"),
            refused(torchcomms.OutOfRange, "put", "16 bytes", "rank 0", end - 2),
        ):
            window.put(torch.ones(2), 0, end - 2, False)
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


@several
def test_a_put_reaches_as_far_as_the_targets_window(world):
    check_context(world, puts_and_the_targets_size)


def numbers_out_of_range():
    """Calls that no window can mean: method, arguments, and what is said of the wrong one."""
    far, data, GE = 2**64, torch.zeros(3), SignalCmpOp.GE
    for wrong, words in ((-1, "int >= 0, not int -1"), (far, f"int of 64 bits, not int {far}")):
        yield "signal", (wrong, 5, 0, False), f"'signal_disp' must be {words}"
        yield "signal", (0, wrong, 0, False), f"'signal_val' must be {words}"
        yield "wait_signal", (wrong, 5, GE, False), f"'signal_disp' must be {words}"
        yield "wait_signal", (0, wrong, GE, False), f"'signal_val' must be {words}"
        yield "get_multimem_address", (wrong,), f"'offset' must be {words}"
    for wrong in (2**31, -far, 10**5000):
        words = "must be int of 32 bits, not int"
        yield "put", (data, wrong, 0, False), f"'dst_rank' {words}"
        yield "signal", (wrong, False), f"'peer_rank' {words}"
        yield "wait_signal", (wrong, False), f"'peer_rank' {words}"
        yield "map_remote_tensor", (wrong,), f"'rank' {words}"
        yield "get_attr", (wrong,), f"'peer_rank' {words}"
        yield "get_device_window", (wrong,), f"'signal_count' {words}"
    yield "get_tensor", (0, [-far], torch.float32, 0), "'sizes' must be int of 64 bits"
    yield "get_tensor", (0, [1], torch.float32, 0.5), "'offset' must be int, not float 0.5"
    for wrong, words in ((7, "not int 7"), ("GE", "not str"), (None, "not NoneType")):
        words = f"torchcomms.SignalCmpOp, such as torchcomms.SignalCmpOp.GE, {words}"
        yield "wait_signal", (0, 5, wrong, False), f"'cmp_op' must be {words}"


def misuse(context):
    comm, failures, size = context.comm, Failures(), context.size
    invalid, data = torchcomms.InvalidArgument, torch.zeros(3)
    with failures.case("never registered"):
        window = comm.new_window()
        for method, arguments in {
            "put": (data, 0, 0, False), "signal": (0, False), "wait_signal": (0, False),
            "map_remote_tensor": (0,), "get_attr": (0,), "tensor_deregister": (),
            "get_device_window": (),
        }.items():  # fmt: skip
            with refused(invalid, method, "registered"):
                getattr(window, method)(*arguments)
    with failures.case("cannot be registered"):
        with refused(invalid, "tensor_register", "contiguous"):
            window.tensor_register(torch.zeros(3, 3).t())
        with refused(invalid, "tensor_register", "meta"):
            window.tensor_register(torch.zeros(3, device="meta"))
        with refused(invalid, "new_window", "contiguous"):
            comm.new_window(torch.zeros(3, 3).t())
        for size_bytes, slots, words in (
            (-1, None, "'window_size' must be int >= 0, not int -1"),
            (2**64, None, f"'window_size' must be int of 64 bits, not int {2**64}"),
            (8.0, None, "'window_size' must be int, not float 8.0"),
            (8, -1, "'signal_size' must be int >= 0, not int -1"),
        ):
            with refused(TypeError, "window_allocate()", words):
                comm.window_allocate(size_bytes, False, slots)
        with refused(torchcomms.TooLarge, "window_allocate"):
            comm.window_allocate(2**63)
    window = comm.new_window(zeros_for_window(comm, 8))
    with failures.case("twice"), refused(invalid, "tensor_register", "already"):
        window.tensor_register(torch.zeros(8))
    with failures.case("bounds"):
        last = size - 1
        for tensor, offset in ((data, 6), (torch.zeros(9), 0), (data.double(), 2), (data, 2**62)):
            with refused(torchcomms.OutOfRange, "put", "32 bytes", f"rank {last}", offset):
                window.put(tensor, last, offset, False)
        with refused(TypeError, "put", "'target_offset_nelems' must be int >= 0, not int -1"):
            window.put(data, 0, -1, False)
        wrong = {2**64: f"int of 64 bits, not int {2**64}", 1.0: "int, not float 1.0"}
        for offset, words in wrong.items():
            with refused(TypeError, "put()", f"'target_offset_nelems' must be {words}"):
                window.put(data, 0, offset, False)
        with refused(torchcomms.OutOfRange, "put", 2**63):
            window.put(data, 0, 2**63, False)
    for method, arguments, words in numbers_out_of_range():
        with failures.case(method, words), refused(TypeError, f"{method}()", words):
            getattr(window, method)(*arguments)
    with failures.case("ranks"):
        for rank in (-1, size):
            for method, arguments in {
                "put": (data, rank, 0, False), "signal": (rank, False),
                "wait_signal": (rank, False), "map_remote_tensor": (rank,), "get_attr": (rank,),
            }.items():  # fmt: skip
                with refused(invalid, method, rank, f"0 to {size - 1}"):
                    getattr(window, method)(*arguments)
    with failures.case("operands"):
        with refused(invalid, "put", "contiguous"):
            window.put(torch.zeros(2, 2).t(), 0, 0, False)
        with refused(invalid, "put", "timeout", "-1000 ms"):
            window.put(data, 0, 0, False, timeout=-1.0)
    if comm.get_device().type == "cpu":  # else tests/spec/test_device_windows.py
        for method, arguments in {
            "get_device_window": (), "register_local_buffer": (data,),
            "get_nvlink_address": (0,), "get_multimem_address": (),
        }.items():  # fmt: skip
            with failures.case(method), refused(torchcomms.Unsupported, method):
                getattr(window, method)(*arguments)
    with failures.case("nothing of it was sent"):
        window.tensor_deregister()
        assert_alive(comm)
    return failures.texts


def test_wrong_calls_are_refused_before_anything_is_sent(world):
    check_context(world, misuse)


def older_interface(context):
    comm, failures = context.comm, Failures()
    rank, size = comm.get_rank(), comm.get_size()
    following, before = around(comm)
    window = comm.window_allocate(window_size=4096, cpu_buf=False, signal_size=64)
    assert window.get_size() == 4096
    with failures.case("put, signal, wait_signal"):
        work = window.put(tensor=torch.full((4,), rank + 0.5), dst_rank=following, target_disp=2,
                          async_op=True)  # fmt: skip
        window.signal(signal_disp=0, signal_val=1, dst_rank=following, async_op=False)
        window.wait_signal(signal_disp=0, signal_val=1, cmp_op=SignalCmpOp.GE, async_op=False)
        own = window.get_tensor(rank, [2, 4], torch.float32, 1)
        assert own.tolist() == [[0.0] + [before + 0.5] * 3, [before + 0.5, 0.0, 0.0, 0.0]]
        finish(work, True)
    with failures.case("views of others"):
        if is_tcp(context) and size > 1:
            with refused(torchcomms.Unsupported, f"rank {following}"):
                window.get_tensor(following, [1], torch.float32, 0)
        else:
            view = window.get_tensor(following, [3], torch.float32, offset=2)
            assert view.tolist() == [rank + 0.5] * 3
    comm.barrier(False)
    with failures.case("comparisons"):
        # A slot holds what was stored last, downwards too; its value is on the left.
        for value, compare, wanted in (
            (7, SignalCmpOp.EQ, 7), (5, SignalCmpOp.LE, 6), (9, SignalCmpOp.GE, 8),
            (2**64 - 1, SignalCmpOp.GE, 10), (0, SignalCmpOp.EQ, 0),
        ):  # fmt: skip
            waits = window.wait_signal(3, wanted, compare, True)
            window.signal(3, value, following, False)
            finish(waits, True)
            window.wait_signal(3, wanted, compare, False)  # nothing was consumed
            comm.barrier(False)
    with failures.case("not yet"):
        waits = window.wait_signal(5, 2, SignalCmpOp.GE, True)
        window.signal(5, 1, following, False)
        comm.barrier(False)
        assert not waits.is_completed()
        comm.barrier(False)
        window.signal(5, 2, following, False)
        finish(waits, True)
    with failures.case("bounds"):
        with refused(torchcomms.OutOfRange, "signal", 64):
            window.signal(64, 1, following, False)
        with refused(torchcomms.OutOfRange, "wait_signal", 64):
            window.wait_signal(64, 1, SignalCmpOp.EQ, False)
        for sizes, offset in (([1025], 0), ([1], 1024), ([2**40, 2**40], 0), ([1], 2**62)):
            with refused(torchcomms.OutOfRange, "get_tensor", 4096):
                window.get_tensor(rank, sizes, torch.float32, offset)
        with refused(torchcomms.InvalidArgument, "get_tensor", "-1"):
            window.get_tensor(rank, [-1], torch.float32, 0)
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


@mapped
def test_the_older_interface_has_slots_that_are_compared(world):
    check_context(world, older_interface)


def keywords(context):
    comm = context.comm
    window, mine = window_of(comm, "plain", 4)
    rank, one = comm.get_rank(), torch.ones(1)
    window.put(tensor=one, dst_rank=rank, target_offset_nelems=0, async_op=False, hints=None)
    window.put(one, rank, offset=1, async_op=False, hints={"any": "thing"}, timeout=5.0)
    window.put(one, rank, target_disp=2, async_op=0)
    assert mine.tolist() == [1.0, 1.0, 1.0, 0.0]
    window.signal(peer_rank=rank, async_op=False)
    window.signal(dst_rank=rank, async_op=1).wait()
    window.wait_signal(peer_rank=rank, async_op=False)
    window.wait_signal(rank, 1).wait()
    window.tensor_deregister()
    return []


def test_parameters_have_their_older_names_too(world):
    check_context(world, keywords)


def copies(context):
    comm, failures = context.comm, Failures()
    rank = comm.get_rank()
    following, before = around(comm)
    for kind in memory_of(comm):
        with failures.case(kind):
            window, mine = window_of(comm, kind, 4)
            mine.fill_(rank)
            assert copy.copy(window) is window
            memo: dict[int, object] = {}
            other = copy.deepcopy(window, memo)
            tensor = other.get_tensor()
            assert memo[id(window)] is other
            assert memo[id(window.get_tensor())] is tensor
            assert torch.equal(tensor.view(torch.float32), mine)
            comm.barrier(False)  # a peer that is ahead writes into it
            other.put(torch.full((2,), 9.0 + rank), following, 0, False)
            other.signal(following, False)
            other.wait_signal(before, False)
            assert tensor.view(torch.float32).tolist() == [9.0 + before, 9.0 + before, rank, rank]
            assert mine.tolist() == [rank] * 4, "the copy has memory of its own"
            assert other.get_attr(following).access_type == window.get_attr(following).access_type
            other.tensor_deregister()
            window.tensor_deregister()
    with failures.case("of a window without a tensor"):
        assert copy.deepcopy(comm.new_window()).get_tensor() is None
    return failures.texts


def test_a_deep_copy_has_a_registered_copy_of_the_tensor(world):
    check_context(world, copies)


def hooks(context):
    comm, fired = context.comm, []
    tensor = zeros_for_window(comm, 4)
    handles = (
        comm.register_pre_hook(lambda name, op_id, args: fired.append(("pre", str(name), op_id))),
        comm.register_post_hook(lambda op_id, args: fired.append(("post", type(args), op_id))),
    )
    window = comm.new_window()
    window.tensor_register(tensor)
    window.put(torch.zeros(1), comm.get_rank(), 0, False)
    window.signal(comm.get_rank(), False)
    window.wait_signal(comm.get_rank(), False)
    window.tensor_deregister()
    comm.window_allocate(8).tensor_deregister()
    for handle in handles:
        handle.remove()
    (pre, name, first), (post, kind, same), (_, _, second), (_, _, last) = fired
    assert (pre, post, kind) == ("pre", "post", torchcomms.NewWindowPostHookArgs)
    assert name.endswith(".new_window")
    assert first == same < second == last
    return []


def test_making_a_window_has_hooks_and_using_it_has_none(world):
    check_context(world, hooks)


def several_windows(context):
    """Of a communicator and of its child, at once; signals do not mix."""
    comm = context.comm
    child = comm.split(list(range(comm.get_size())), "windows_child")
    windows = [of.new_window(zeros_for_window(comm, 4)) for of in (comm, child, comm)]
    following, before = around(comm)
    for number, window in enumerate(windows):
        window.put(torch.full((4,), number + 1.0), following, 0, True)
        window.signal(following, True)
    for number, window in reversed(list(enumerate(windows))):
        window.wait_signal(before, False)
        assert window.get_tensor().tolist() == [number + 1.0] * 4
    for window in windows:
        window.tensor_deregister()
    child.finalize()
    assert_alive(comm)
    return []


def test_windows_do_not_disturb_each_other(world):
    check_context(world, several_windows)


def after_the_end(context):
    comm, failures = context.new_comm(), Failures()
    window = comm.new_window(zeros_for_window(comm, 4))
    dropped = comm.new_window(zeros_for_window(comm, 4))
    comm.barrier(False)
    del dropped  # without tensor_deregister()
    comm.barrier(False)
    comm.finalize()
    for method, arguments in {
        "put": (torch.zeros(1), 0, 0, False), "signal": (0, False), "wait_signal": (0, False),
        "map_remote_tensor": (0,), "tensor_deregister": (), "get_attr": (0,),
    }.items():  # fmt: skip
        with failures.case(method), refused(torchcomms.CommFinalized, method):
            getattr(window, method)(*arguments)
    assert window.get_size() == 16
    with failures.case("new_window"), refused(RuntimeError, "not initialized"):
        comm.new_window()
    return failures.texts


def test_after_finalize_a_window_is_of_no_use(world):
    check_context(world, after_the_end)


def timeout(context):
    comm, failures = context.new_comm(), Failures()
    window = comm.new_window(torch.zeros(4))
    store = context.store("window_timeout")
    if context.rank == 0:
        began = time.monotonic()
        with failures.case("wait"), pytest.raises(torchcomms.CommTimeout) as caught:
            window.wait_signal(1, False, timeout=SHORT_S)
        with failures.case("told"):
            error, text = caught.value, str(caught.value)
            assert (error.peer, error.culprits) == (1, (1,)), error
            assert all(each in text for each in ("wait_signal", "rank 1", "300")), text
        with failures.case("time"):
            assert SHORT_S * 0.95 <= time.monotonic() - began < 20.0
        with failures.case("for good"), refused(torchcomms.CommTimeout, "put"):
            window.put(torch.zeros(1), 0, 0, False)
        assert comm.is_aborted()
        store.set("late", "yes")
    else:
        store.wait(["late"])
        with failures.case("told"), refused(torchcomms.CommTimeout, "rank 0"):
            window.wait_signal(0, False, timeout=30.0)
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), device="cpu")
def test_a_wait_has_a_limit_and_its_end_ends_the_communicator(world):
    check_context(world, timeout)


def default_limit(context):
    comm = context.new_comm()
    window = comm.new_window(torch.zeros(4))
    comm.barrier(False)
    if context.rank == 0:
        comm.set_timeout(SHORT_S)
        with refused(torchcomms.CommTimeout, "wait_signal", "communicator's timeout"):
            window.wait_signal(1, False)
    context.meet("default_limit")
    comm.finalize()
    return []


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), device="cpu")
def test_without_a_time_of_its_own_a_wait_takes_the_communicators(world):
    check_context(world, default_limit)


def closed_with_waits(context):
    comm, failures = context.comm, Failures()
    following, before = around(comm)
    window, _ = window_of(comm, "plain", 4)
    met, vain = (window.wait_signal(following, True, timeout=60.0) for _ in range(2))
    slot = window.wait_signal(1, 7, SignalCmpOp.EQ, True, timeout=60.0)
    window.signal(before, False)
    began = time.monotonic()
    window.tensor_deregister()
    finish(met, True)
    for name, work in (("signal", vain), ("slot", slot)):
        with (
            failures.case(name),
            refused(
                torchcomms.InvalidArgument,
                "wait_signal",
                "the window was closed while wait_signal waited",
            ),
        ):
            work.wait()
    with failures.case("soon"):
        assert time.monotonic() - began < 30
    with failures.case("the communicator goes on"):
        assert not comm.is_aborted()
        assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), device="cpu")
def test_closing_a_window_ends_waits_that_are_in_vain(world):
    check_context(world, closed_with_waits)


def finalized_with_waits(context):
    comm, failures = context.new_comm(), Failures()
    following, before = around(comm)
    window, _ = window_of(comm, "plain", 4)
    met, vain = (window.wait_signal(following, True, timeout=60.0) for _ in range(2))
    window.signal(before, False)
    context.comm.barrier(False)  # before that, who leaves ends others' calls
    # Where the following one was faster, the wait has failed by now, and nobody knows of it yet.
    with contextlib.suppress(torchcomms.PeerFailed):
        comm.finalize()
    finish(met, True)
    began = time.monotonic()
    with (
        failures.case("typed"),
        refused(torchcomms.PeerFailed, "wait_signal", "has closed the communicator"),
    ):
        vain.wait()
    with failures.case("soon"):
        assert time.monotonic() - began < 30
    return failures.texts


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), device="cpu")
def test_waits_for_ranks_that_have_finalized_too_end(world):
    check_context(world, finalized_with_waits)


def aborted(context):
    comm = context.new_comm()
    window = comm.new_window(torch.zeros(4))
    context.comm.barrier(False)  # of another one: nobody is in an operation of this one
    if context.rank == 0:
        waits = window.wait_signal(1, True)
        comm.abort()
        with refused(torchcomms.Aborted, "wait_signal"):
            waits.wait()
        with refused(torchcomms.Aborted, "put"):
            window.put(torch.zeros(1), 0, 0, False)
    else:
        with refused(torchcomms.PeerFailed, "rank 0"):
            window.wait_signal(0, False, timeout=30.0)
    comm.finalize()
    return []


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), device="cpu")
def test_an_abort_ends_waits_here_and_elsewhere(world):
    check_context(world, aborted)


def departed(context):
    comm = context.new_comm()
    window = comm.new_window(torch.zeros(4))
    last = context.size - 1
    if context.rank == last:
        window.put(torch.ones(1), 0, 0, True)
        window.signal(0, True)
        comm.finalize()
        return []
    if context.rank == 0:
        window.wait_signal(last, False, timeout=30.0)  # what it did before it left is here
        assert window.get_tensor()[0] == 1
        with refused(torchcomms.PeerFailed, f"rank {last}", "closed"):
            window.wait_signal(last, False, timeout=30.0)
    context.store("departed").set(str(context.rank), "done")
    context.store("departed").wait([str(rank) for rank in range(last)])
    comm.finalize()
    return []


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), device="cpu")
def test_signals_of_a_rank_that_leaves_arrive_and_no_more_are_waited_for(world):
    check_context(world, departed)


def disagreement(context):
    comm = context.new_comm()
    with refused(torchcomms.Mismatch, "tensor_register", "barrier"):
        if context.rank == 0:
            comm.barrier(False, timeout=30.0)
        else:
            comm.new_window(torch.zeros(4))
    comm.finalize()
    return []


@pytest.mark.worlds(backends=("ctran",), sizes=(2, 3, 4), needs=("one_engine",))
def test_registration_is_collective(world):
    check_context(world, disagreement)
