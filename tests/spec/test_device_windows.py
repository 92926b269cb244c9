"""What kernels are given of windows and communicators: handles, sources of puts, addresses.

What kernels do with them is in tests/gpu/test_device_windows.py and tests/cpp/ctran/team.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torchcomms

from tests.harness.cases import Failures, assert_alive, check, check_context, refused

pytestmark = pytest.mark.worlds(backends=("ctran", "ncclx"), needs=("device_windows",))
BYTES = 4096


def handles(comm):
    failures = Failures()
    window = comm.window_allocate(BYTES)
    with failures.case("made once"):
        handle = window.get_device_window(signal_count=4, counter_count=2, barrier_count=1)
        assert isinstance(handle, int)
        assert handle != 0
        assert window.get_device_window() == window.get_device_window(9, 9, 9) == handle
    with failures.case("of each window"):
        other = copy.deepcopy(window)
        assert other.get_device_window() not in (0, handle)
        other.tensor_deregister()
    with failures.case("not collective"):
        if comm.get_rank() == 0:
            assert window.get_device_window() == handle
    window.tensor_deregister()
    with failures.case("gone"), refused(torchcomms.InvalidArgument, "get_device_window"):
        window.get_device_window()
    assert_alive(comm)
    return failures.texts


def test_a_window_has_one_handle(world):
    check(world, handles)


def counts(comm):
    failures = Failures()
    window = comm.window_allocate(BYTES)
    for name in ("signal_count", "counter_count", "barrier_count"):
        with failures.case(name):
            with refused(torchcomms.InvalidArgument, "get_device_window", name, -2):
                window.get_device_window(**{name: -2})
            with refused(torchcomms.OutOfRange, "get_device_window", name, 2**20):
                window.get_device_window(**{name: 2**20})
    with failures.case("nothing was made"):
        assert window.get_device_window(-1, -1, 0) != 0
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_counts_that_cannot_be_are_refused(world):
    check(world, counts)


def buffers(context):
    comm, failures = context.comm, Failures()
    window, data = comm.window_allocate(BYTES), torch.zeros(16)
    invalid = torchcomms.InvalidArgument
    with failures.case("before a handle"), refused(invalid, "get_device_window"):
        window.register_local_buffer(data)
    window.get_device_window()
    with failures.case("distinct"):
        first, second = (window.register_local_buffer(data) for _ in range(2))
        assert first != second
        window.deregister_local_buffer(first)
        assert window.register_local_buffer(tensor=data) == first
    with failures.case("unknown"):
        for handle in (0, second + 1):
            with refused(invalid, "deregister_local_buffer", handle):
                window.deregister_local_buffer(handle)
        window.deregister_local_buffer(handle=second)
        with refused(invalid, "deregister_local_buffer"):
            window.deregister_local_buffer(second)
    with failures.case("tensors"), refused(invalid, "register_local_buffer", "contiguous"):
        window.register_local_buffer(torch.zeros(3, 3).t())
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_sources_of_puts_are_registered_and_taken_back(world):
    check_context(world, buffers)


def addresses(comm):
    failures, size = Failures(), comm.get_size()
    window = comm.window_allocate(BYTES)
    with failures.case("its own"):
        own = window.get_tensor().data_ptr()
        assert window.get_nvlink_address(comm.get_rank()) == own
        assert window.get_nvlink_address(comm.get_rank(), offset=BYTES) == own + BYTES
    with failures.case("others'"):
        for peer in range(size):
            assert window.get_nvlink_address(peer) == window.map_remote_tensor(peer).data_ptr()
    with failures.case("bounds"):
        with refused(torchcomms.OutOfRange, "get_nvlink_address", BYTES + 1):
            window.get_nvlink_address(0, BYTES + 1)
        with refused(torchcomms.InvalidArgument, "get_nvlink_address", size):
            window.get_nvlink_address(size)
    with failures.case("multicast"):
        assert window.get_multimem_address() == window.get_multimem_address(offset=8) == 0
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_the_memory_of_peers_has_addresses(world):
    check(world, addresses)


def transports(comm):
    failures = Failures()
    with failures.case("made once"):
        address = comm.get_device_transport()
        assert isinstance(address, int)
        assert address == comm.get_device_transport() != 0
    assert_alive(comm)
    return failures.texts


def test_a_communicator_has_one_transport(world):
    check(world, transports)


def alone(comm):
    """As much of a rank that is split off by itself."""
    mine = comm.split([comm.get_rank()], "alone")
    texts = handles(mine) + counts(mine) + addresses(mine) + transports(mine)
    window = mine.window_allocate(BYTES, signal_size=4)
    window.put(torch.full((8,), 5, dtype=torch.uint8), 0, 3, False)
    window.signal(0, False)
    window.wait_signal(0, False)
    if window.get_tensor().is_cuda:
        torch.cuda.synchronize()
    assert window.get_tensor()[:12].tolist() == [0] * 3 + [5] * 8 + [0]
    window.tensor_deregister()
    mine.finalize()
    return texts


def test_a_rank_alone_has_windows_and_a_transport(world):
    check(world, alone)


def names(comm):
    from torchcomms import _comms_ncclx

    window = comm.new_window()
    assert isinstance(window, _comms_ncclx.TorchCommWindowNCCLXGin)
    assert isinstance(window, _comms_ncclx.TorchCommWindowNCCLXPipes)
    return []


@pytest.mark.worlds(backends=("ncclx",))
def test_windows_have_the_names_of_ncclx(world):
    check(world, names)
