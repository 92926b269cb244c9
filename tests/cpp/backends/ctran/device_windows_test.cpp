// Windows of backend ctran where kernels carry out what is on the device: the stand-in's, for host
// memory.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "backends/ctran/stand_in_kernels.hpp"

namespace torch::comms::ctran_test {
namespace {

using nccl::error_of;
using nccl::Program;
using std::chrono::milliseconds;

at::Tensor filled(float value, int64_t count = 4) { return at::full({count}, value); }

class CtranDeviceWindows : public StandInKernels {};

float at_of(const at::Tensor& bytes, int64_t index) {
  return bytes.view(at::kFloat).const_data_ptr<float>()[index];
}

TEST_F(CtranDeviceWindows, PutsAndSignalsAreOnTheCurrentStreamAndTheHostGoesOn) {
  on_ranks(3, [](Program& self) {
    const auto window = self.comm->window_allocate(64);
    const int next = (self.rank + 1) % 3, before = (self.rank + 2) % 3;
    auto data = filled(0);
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { data.fill_(static_cast<float>(self.rank + 1)); });
    window->put(data, next, 2, false, {});
    window->signal(next, false, {});
    window->wait_signal(before, false, {});
    gate->set_value();  // the host has come here

    self.synchronize();
    EXPECT_EQ(at_of(*window->get_tensor(), 5), static_cast<float>(before + 1));
    EXPECT_EQ(at_of(*window->get_tensor(), 6), 0);
    // What others have is mapped, and alive.
    EXPECT_EQ(at_of(window->get_remote_tensor(next, {64}, at::kByte, 0), 2),
              static_cast<float>(self.rank + 1));
    window->tensor_deregister();
    self.comm->finalize();
  });
}

TEST_F(CtranDeviceWindows, WhatComesAfterAnAsynchronousWaitDoesNotWaitWithIt) {
  on_ranks(2, [](Program& self) {
    const auto window = self.comm->window_allocate(64);
    const auto wait = self.rank == 0 ? window->wait_signal(1, true, {}) : WorkPtr();
    auto tensor = filled(1);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    EXPECT_FALSE(wait && wait->isCompleted());
    self.comm->barrier(true)->hostSynchronize();
    if (self.rank == 1) window->signal(0, false, {});
    if (wait) wait->hostSynchronize();
    window->tensor_deregister();
    self.comm->finalize();
  });
}

TEST_F(CtranDeviceWindows, AWaitHasALimitWhichEndsTheCommunicator) {
  on_ranks(2, [](Program& self) {
    const auto window = self.comm->window_allocate(64);
    if (self.rank == 0) {
      WaitSignalOptions options;
      options.timeout = milliseconds(200);
      const auto wait = window->wait_signal(1, true, options);
      const auto error = error_of([&] { wait->hostSynchronize(); });
      EXPECT_EQ(error.code(), Errc::kTimeout);
      EXPECT_EQ(error.context().op, "wait_signal");
      EXPECT_EQ(error_of([&] { window->signal(1, false, {}); }).code(), Errc::kTimeout);
    } else {
      EXPECT_EQ(error_of([&] { window->wait_signal(0, true, {})->hostSynchronize(); }).code(),
                Errc::kPeerFailed);
    }
  });
}

TEST_F(CtranDeviceWindows, AWindowThatIsLetGoIsStillThereForOthers) {
  on_ranks(2, [](Program& self) {
    auto window = self.comm->window_allocate(1 << 20);
    const auto other = window->clone();
    window->signal(1 - self.rank, false, {});
    window->wait_signal(1 - self.rank, false, {});
    if (self.rank == 0) window.reset();
    self.comm->barrier(false);
    const auto data = filled(3, 1 << 18);
    if (self.rank == 1)
      for (int i = 0; i < 10; ++i) window->put(data, 0, 0, false, {});
    self.comm->barrier(false);
    self.synchronize();
    EXPECT_EQ(other->get_size(), size_t{1} << 20);
    self.comm->finalize();
  });
}

TEST_F(CtranDeviceWindows, MemoryOfTheAllocatorIsTheirs) {
  on_ranks(2, [](Program& self) {
    const auto allocator = get_mem_allocator("ctran");
    const auto memory = allocator->allocate(4096);
    std::fill_n(static_cast<float*>(memory.get()), 4, static_cast<float>(self.rank));
    EXPECT_NE(memory.get(), nullptr);
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::ctran_test
