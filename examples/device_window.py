"""A kernel of one's own: it sends results to the next GPU and waits for those of the one before.

It computes, puts and waits by itself: the host launches it once for all rounds. It is compiled as
the program starts, with the headers that come with torchcomms.

Run it so, on a machine whose GPUs are joined by NVLink:

    torchrun --nproc-per-node 2 examples/device_window.py
"""

from pathlib import Path

import torch
import torchcomms

NUMEL, ROUNDS, THREADS = 1 << 16, 10, 256
SOURCE = """
#include <torchcomms/device/window.hpp>
using namespace torchcomms::device;

// numbers: the window's handle, that of the source, the source, elements, rounds.
extern "C" __global__ void shift(const unsigned long long* numbers, int* result) {
  const auto* window = reinterpret_cast<const TorchCommDeviceWindow<>*>(numbers[0]);
  const auto* buffer = reinterpret_cast<const RegisteredBuffer*>(numbers[1]);
  auto* mine = reinterpret_cast<float*>(numbers[2]);
  const unsigned long long elements = numbers[3], rounds = numbers[4];
  const int size = window->num_ranks(), next = (window->rank() + 1) % size;
  const auto* theirs = static_cast<const float*>(window->base());

  int code = kDone;
  for (unsigned long long round = 1; round <= rounds && code == kDone; ++round) {
    // What the scope's threads wrote before goes with the put, and with its signal 0.
    code = window->put(0, *buffer, 0, next, elements * sizeof(float), 0, -1, CoopScope::BLOCK);
    if (code == kDone) code = window->wait_signal(0, CmpOp::GE, round, CoopScope::BLOCK);
    if (code != kDone) break;
    for (unsigned long long i = threadIdx.x; i < elements; i += blockDim.x) mine[i] = theirs[i] + 1;
    code = window->barrier(0, CoopScope::BLOCK);  // all have read: the next round may write
  }
  if (threadIdx.x == 0) *result = code;
}
"""


def main() -> None:
    comm = torchcomms.new_comm("ctran", torch.device("cuda"), name="world")
    rank, size = comm.get_rank(), comm.get_size()
    torch.set_default_device(comm.get_device())

    window = comm.window_allocate(NUMEL * 4)
    handle = window.get_device_window(signal_count=1)
    mine = torch.full((NUMEL,), float(rank))
    buffer = window.register_local_buffer(mine)

    headers = Path(torchcomms.__file__).parent / "include"
    kernel = torch.cuda._compile_kernel(SOURCE, "shift", cuda_include_dirs=[str(headers)])
    numbers = torch.tensor([handle, buffer, mine.data_ptr(), NUMEL, ROUNDS])
    result = torch.zeros(1, dtype=torch.int32)
    kernel(grid=(1, 1, 1), block=(THREADS, 1, 1), args=[numbers, result])
    torch.cuda.synchronize()

    assert result.item() == 0, "see Result in torchcomms/device/waiting.hpp"
    origin = (rank - ROUNDS) % size
    assert bool((mine == origin + ROUNDS).all())
    print(f"rank {rank}: {mine[0].item():.0f} came from rank {origin}", flush=True)

    window.tensor_deregister()  # with what was registered; kernels are over by now
    comm.finalize()


if __name__ == "__main__":
    main()
