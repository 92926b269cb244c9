// Tensors of a device on backend gloo, by way of host memory.
#include "backends/staged_world.hpp"

#include "backends/gloo/gloo_backend.hpp"

namespace torch::comms::staged_test {
namespace {

TEST(GlooStaging, EveryOperationDoesTheSameSynchronously) {
  expect_every_operation_does_the_same<TorchCommGloo>(false);
}

TEST(GlooStaging, EveryOperationDoesTheSameAsynchronously) {
  expect_every_operation_does_the_same<TorchCommGloo>(true);
}

TEST(GlooStaging, ALimitThatPassesEndsTheOperationAsOnTheCpu) {
  std::promise<void> seen;
  on_ranks<TorchCommGloo>(2, [&](Program& self) {
    if (self.rank == 1) return seen.get_future().wait();
    auto tensor = number(1);
    AllReduceOptions options;
    options.timeout = std::chrono::milliseconds(100);
    const auto work = self.all_reduce(tensor, true, options);
    EXPECT_EQ(work->getTimeout(), options.timeout);
    EXPECT_EQ(error_of([&] { work->wait(); }).code(), Errc::kTimeout);
    EXPECT_EQ(work->status(), WorkStatus::TIMEDOUT);
    self.synchronize();
    EXPECT_EQ(first(tensor), 1) << "the device has what it had";
    // Gloo has closed its connections, and says so.
    EXPECT_EQ(error_of([&] { self.all_reduce(tensor, false); }).code(), Errc::kPeerFailed);
    seen.set_value();
  });
}

TEST(GlooStaging, AnAsynchronousWorkBlocksNoHostAsOnTheCpu) {
  std::promise<void> refused;
  on_ranks<TorchCommGloo>(2, [&](Program& self) {
    auto tensor = number(self.rank);
    if (self.rank == 1) {
      refused.get_future().wait();
      self.send(tensor, 0, false);
      return;
    }
    const auto work = self.recv(tensor, 1, true);
    EXPECT_EQ(error_of([&] { work->waitBlocking(); }).code(), Errc::kUnsupported);
    refused.set_value();
    work->wait();
    self.synchronize();
    EXPECT_EQ(first(tensor), 1);
  });
}

}  // namespace
}  // namespace torch::comms::staged_test
