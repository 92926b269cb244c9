"""Windows and transports used by kernels on GPUs, compiled here with the package's headers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import torchcomms

from tests.gpu.test_failures import SOON_S, gpu_lives, own_comm
from tests.harness.cases import Failures, assert_alive, check, check_context, refused

pytestmark = pytest.mark.worlds(
    device="cuda", backends=("ctran", "ncclx"), needs=("device_windows",)
)
BYTES, THREADS = 1 << 20, 256
INVALID, OUT_OF_BOUNDS, STOPPED, TIMED_OUT = -1, -2, -3, -4

# Each kernel has numbers, of which addresses are some, and a result that is 0 at first.
SOURCE = """
#include <torchcomms/device/symbols.hpp>
using namespace torchcomms::device;
using DeviceWindow = TorchCommDeviceWindow<NCCLXBackend>;
using Numbers = const unsigned long long;

// Rounds: the data go to the next rank, with a signal, and come from the one before.
extern "C" __global__ void put_around(Numbers* n, int* result) {
  const auto* window = reinterpret_cast<const DeviceWindow*>(n[0]);
  const auto* source = reinterpret_cast<const RegisteredBuffer*>(n[1]);
  const int size = window->num_ranks(), rank = window->rank();
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  int code = 0;
  for (unsigned long long round = 1; round <= n[3] && code == 0; ++round) {
    code = window->put(0, *source, 0, next, n[2], 3, 1, CoopScope::BLOCK);
    if (code == 0) code = window->wait_signal_from(before, 3, CmpOp::GE, round, CoopScope::BLOCK);
    if (code == 0) code = window->wait_signal(3, CmpOp::GE, round, CoopScope::BLOCK);
    if (code == 0) code = window->wait_counter(1, CmpOp::GE, round, CoopScope::WARP);
    if (code == 0) code = window->barrier(0, CoopScope::BLOCK);
  }
  atomicMin(result, code);
}

// Every warp puts a part of its own, then one thread signals for all.
extern "C" __global__ void put_by_warps(Numbers* n, int* result) {
  const auto* window = reinterpret_cast<const DeviceWindow*>(n[0]);
  const auto* from = reinterpret_cast<const char*>(n[1]);
  const int next = (window->rank() + 1) % window->num_ranks();
  const unsigned long long part = n[2] / (blockDim.x / 32), begin = threadIdx.x / 32 * part;
  int code = window->put(begin, from + begin, next, part, -1, -1, CoopScope::WARP);
  if (__syncthreads_or(code) == 0) {
    code = window->signal(next, 5, SignalOp::SET, 77, CoopScope::BLOCK);
    if (code == 0) code = window->wait_signal(5, CmpOp::EQ, 77, CoopScope::BLOCK);
    if (code == 0) code = window->barrier(0, CoopScope::BLOCK);
  }
  atomicMin(result, code);
}

extern "C" __global__ void misuse(Numbers* n, int* results) {
  const auto* window = reinterpret_cast<const DeviceWindow*>(n[0]);
  const auto* source = reinterpret_cast<const RegisteredBuffer*>(n[1]);
  const unsigned long long size = window->size();
  const int peer = (window->rank() + 1) % window->num_ranks();
  int i = 0;
  results[i++] = window->put(size - 8, *source, 0, peer, 16);
  results[i++] = window->put(~0ull - 4, *source, 0, peer, 16);
  results[i++] = window->put(0, *source, source->size - 8, peer, 16);
  results[i++] = window->put(0, *source, 0, window->num_ranks(), 16);
  results[i++] = window->put(0, *source, 0, peer, 16, 1 << 20);
  results[i++] = window->signal(peer, -1);
  results[i++] = window->barrier(1 << 20);
  results[i++] = window->get_multimem_address() == nullptr ? 0 : 1;
  results[i++] = window->get_nvlink_address(peer) != nullptr ? 0 : 1;
}

extern "C" __global__ void wait_in_vain(Numbers* n, int* result) {
  const auto* window = reinterpret_cast<const DeviceWindow*>(n[0]);
  const int code = window->wait_signal_from(window->rank(), 9, CmpOp::GE, 1, CoopScope::BLOCK);
  atomicMin(result, code);
}

// Block 0 sends to the next rank, block 1 receives from the one before.
extern "C" __global__ void pass(Numbers* n, int* result) {
  void* const transport = reinterpret_cast<void*>(n[0]);
  const int size = torchcomms_transport_n_ranks(transport);
  const int rank = torchcomms_transport_my_rank(transport);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  int code = 0;
  for (unsigned long long round = 0; round < n[5] && code == 0; ++round)
    code = blockIdx.x == 0 ? torchcomms_transport_send(transport, next,
                                                       reinterpret_cast<void*>(n[1]), n[3], n[4])
                           : torchcomms_transport_recv(transport, before,
                                                       reinterpret_cast<void*>(n[2]), n[3], 0);
  if (code == 0 && blockIdx.x == 0) {
    code = torchcomms_transport_signal(transport, next, 2, 1, 5);
    if (code == 0) code = torchcomms_transport_wait_signal(transport, before, 2, 3, 5);
    for (int peer = 0; peer < size; ++peer)
      if (code == 0) code = torchcomms_transport_barrier(transport, peer, 1);
  }
  atomicMin(result, code);
}
"""


def launch(name, numbers, result, blocks=1, threads=THREADS):
    """A kernel of SOURCE, compiled by NVRTC with the package's headers, on the current stream."""
    headers = Path(torchcomms.__file__).parent / "include"
    kernel = torch.cuda._compile_kernel(SOURCE, name, cuda_include_dirs=[str(headers)])
    numbers = torch.tensor(numbers, dtype=torch.int64)
    kernel(grid=(blocks, 1, 1), block=(threads, 1, 1), args=[numbers, result])
    return numbers  # kept until the kernel is over


def windowed(comm):
    """A window of its own memory, its handle, a source of data, and a result that is 0."""
    window = comm.window_allocate(BYTES)
    handle = window.get_device_window(signal_count=16, counter_count=4, barrier_count=1)
    data = torch.full((BYTES,), comm.get_rank() + 1, dtype=torch.uint8)
    buffer = window.register_local_buffer(data)
    return window, handle, data, buffer, torch.zeros(1, dtype=torch.int32)


def puts(comm):
    failures, before = Failures(), (comm.get_rank() - 1) % comm.get_size() + 1
    window, handle, data, buffer, result = windowed(comm)
    torch.cuda.synchronize()
    comm.barrier(False)
    launch("put_around", [handle, buffer, BYTES - 13, 50], result)
    torch.cuda.synchronize()
    with failures.case("block"):
        assert result.item() == 0
        mine = window.get_tensor()
        assert bool((mine[: BYTES - 13] == before).all())
        assert bool((mine[BYTES - 13 :] == 0).all())
    comm.barrier(False)
    launch("put_by_warps", [handle, data.data_ptr(), BYTES], result)
    torch.cuda.synchronize()
    with failures.case("warps"):
        assert result.item() == 0
        assert bool((window.get_tensor() == before).all())
    comm.barrier(False)
    window.deregister_local_buffer(buffer)
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_kernels_put_signal_wait_and_meet(world):
    check(world, puts)


def puts_alone(comm):
    alone = comm.split([comm.get_rank()], "alone")
    failures = puts(alone)
    alone.finalize()
    return failures


def test_a_rank_alone_has_windows_for_kernels(world):
    check(world, puts_alone)


def refusals(comm):
    failures = Failures()
    window, handle, _, buffer, _ = windowed(comm)
    results = torch.full((9,), 99, dtype=torch.int32)
    torch.cuda.synchronize()
    comm.barrier(False)
    launch("misuse", [handle, buffer], results, threads=1)
    torch.cuda.synchronize()
    comm.barrier(False)
    with failures.case("codes"):
        assert results.tolist() == [OUT_OF_BOUNDS] * 3 + [INVALID] * 4 + [0, 0]
    with failures.case("nothing was written"):
        torch.cuda.synchronize()
        assert bool((window.get_tensor() == 0).all())
    comm.barrier(False)
    window.tensor_deregister()
    assert_alive(comm)
    return failures.texts


def test_what_is_beyond_the_window_is_refused_on_the_device(world):
    check(world, refusals)


def messages(comm):
    failures, rank, size = Failures(), comm.get_rank(), comm.get_size()
    transport = comm.get_device_transport()
    assert transport == comm.get_device_transport()
    result = torch.zeros(1, dtype=torch.int32)
    for turn, (count, step) in enumerate(((1, 0), (4096, 512), (BYTES + 5, 0), (BYTES, 300_000))):
        out = torch.full((count,), rank + 10 * turn, dtype=torch.uint8)
        into = torch.zeros(count, dtype=torch.uint8)
        torch.cuda.synchronize()
        comm.barrier(False)
        numbers = [transport, out.data_ptr(), into.data_ptr(), count, step, 20]
        launch("pass", numbers, result, blocks=2)
        torch.cuda.synchronize()
        with failures.case(f"{count} bytes"):
            assert result.item() == 0
            assert bool((into == (rank - 1) % size + 10 * turn).all())
    assert_alive(comm)
    return failures.texts


def test_kernels_send_and_receive(world):
    check(world, messages)


def aborted(context):
    failures, comm = Failures(), own_comm(context)
    window, handle, _, _, result = windowed(comm)
    torch.cuda.synchronize()
    context.meet("all have a window")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        numbers = launch("wait_in_vain", [handle], result)
    began = time.monotonic()
    comm.abort()
    side.synchronize()
    with failures.case("soon"):
        assert time.monotonic() - began < SOON_S
    with failures.case("its code"):
        assert result.item() == STOPPED
    del numbers
    context.meet("all kernels have ended")
    del window
    comm.finalize()
    with failures.case("afterwards"):
        gpu_lives(context)
    return failures.texts


def test_an_abort_ends_what_kernels_wait_for(world):
    check_context(world, aborted)


def limited(context):
    failures, comm = Failures(), own_comm(context, timeout=3.0)
    window, handle, _, _, result = windowed(comm)
    torch.cuda.synchronize()
    context.meet("all have a window")
    launch("wait_in_vain", [handle], result)
    torch.cuda.synchronize()
    with failures.case("its code"):
        assert result.item() == TIMED_OUT
    with failures.case("the next call"), refused(torchcomms.CommTimeout):
        comm.barrier(False)
    context.meet("all kernels have ended")
    del window
    with failures.case("the failure is known"):
        comm.finalize()
    return failures.texts


def test_a_wait_has_the_communicators_timeout(world):
    check_context(world, limited)
