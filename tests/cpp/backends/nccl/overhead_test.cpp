// What a call asks of the runtime and of the allocator, beside the library.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "backends/nccl/counted_new.hpp"
#include "backends/nccl/world.hpp"
#include "base/concurrency/freelist.hpp"

namespace torch::comms::nccl {
namespace {

class VendorOverhead : public VendorTest {
 protected:
  // A rank alone, where each call of `op` is close behind the one before.
  static void warm(Program& self, const std::function<WorkPtr()>& op) {
    for (int round = 0; round < 3; ++round) {
      WorkPtr last;
      for (int i = 0; i < 20; ++i) last = op();
      last->hostSynchronize();
    }
    self.synchronize();
  }
};

TEST_F(VendorOverhead, ASynchronousCallAllocatesNothingBesideTheLibraryAndItsEvent) {
  if (!TC_RECYCLES) GTEST_SKIP() << "memory is not recycled under the address sanitizer";
  on_ranks(1, [](Program& self) {
    auto tensor = at::ones({2});
    const auto op = [&] { return self.comm->all_reduce(tensor, ReduceOp::SUM, false); };
    // As many at once as below, so that all there is to recycle is there.
    auto gate = self.close_gate();
    for (int i = 0; i < 20; ++i) op();
    gate->set_value();
    self.synchronize();
    warm(self, op);
    gate = self.close_gate();
    op();  // the first one behind other work has an event of its beginning
    // The least of several: one that is held up takes an event of its beginning.
    const auto count = [](const auto& body) {
      size_t least = SIZE_MAX;
      for (int i = 0; i < 8; ++i) {
        const size_t before = times_asked();
        body();
        least = std::min(least, times_asked() - before);
      }
      return least;
    };
    const size_t ours = count(op);
    const auto& backend = dynamic_cast<TorchCommNCCL&>(*self.comm->getBackendImpl());
    auto* const raw = reinterpret_cast<abi::Comm>(backend.communicator_address());
    const auto library = load(kNccl);
    const auto event = gpu::Runtime::cpu().create_event();
    const size_t least = count([&] {
      library.AllReduce(tensor.data_ptr(), tensor.data_ptr(), 2, abi::DataType::kFloat32,
                        abi::RedOp::kSum, raw, self.stream);
      gpu::Runtime::cpu().record(event, self.stream);
    });
    EXPECT_EQ(ours, least);
    EXPECT_GT(least, 0u) << "nothing is counted";
    gate->set_value();
    self.synchronize();
    gpu::Runtime::cpu().destroy_event(event);
    self.comm->finalize();
  });
}

TEST_F(VendorOverhead, ASynchronousCallAsksForTheCaptureOnceAndRecordsOneEvent) {
  on_ranks(1, [](Program& self) {
    auto tensor = at::ones({2});
    const auto op = [&] { return self.comm->all_reduce(tensor, ReduceOp::SUM, false); };
    warm(self, op);
    // Of ten calls in a row none but the first may be late: the machine may be busy.
    size_t least = 100;
    for (int i = 0; i < 10; ++i) {
      gpu::cpu_call_counts() = {};
      op();
      EXPECT_EQ(gpu::cpu_call_counts().captures, 1u);
      EXPECT_EQ(gpu::cpu_call_counts().waits, 0u);
      least = std::min(least, gpu::cpu_call_counts().records);
    }
    EXPECT_EQ(least, 1u);
    self.synchronize();
    self.comm->finalize();
  });
}

TEST_F(VendorOverhead, AnAsynchronousCallRecordsWhereItBeginsAndWhereItEnds) {
  on_ranks(1, [](Program& self) {
    auto tensor = at::ones({2});
    const auto op = [&] { return self.comm->all_reduce(tensor, ReduceOp::SUM, true); };
    warm(self, op);
    gpu::cpu_call_counts() = {};
    const auto work = op();
    EXPECT_EQ(gpu::cpu_call_counts().captures, 1u);
    EXPECT_EQ(gpu::cpu_call_counts().records, 2u);
    EXPECT_EQ(gpu::cpu_call_counts().waits, 1u);
    work->wait();
    self.synchronize();
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::nccl
