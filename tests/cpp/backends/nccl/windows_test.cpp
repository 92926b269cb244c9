// Windows of the library's own: limits, captures, and what is given back.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <torchcomms/window.hpp>

#include <set>

#include "backends/nccl/streams/signal_communicators.hpp"
#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

TEST(SignalWays, NoRankWaitsWhereItSignals) {
  for (const int ranks : {2, 3, 4, 6, 7, 8, 20, 21, 64}) {
    const int communicators = count_signal_communicators(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      std::set<int> signals_in, waits_in;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        signals_in.insert(signal_communicator_index(rank, peer, ranks));
        waits_in.insert(signal_communicator_index(peer, rank, ranks));
      }
      for (const int communicator : signals_in) {
        EXPECT_TRUE(communicator >= 0 && communicator < communicators)
            << ranks << " ranks, way " << communicator;
        EXPECT_FALSE(waits_in.contains(communicator)) << ranks << " ranks, rank " << rank;
      }
    }
  }
  EXPECT_EQ(count_signal_communicators(1), 0);
  EXPECT_EQ(count_signal_communicators(2), 2);
  EXPECT_EQ(count_signal_communicators(8), 5);
}

class VendorWindows : public VendorTest {};

at::Tensor floats_of(const TorchCommWindow& window) {
  return window.get_tensor()->view(at::kFloat);
}

TEST_F(VendorWindows, PutsAndSignalsAreCapturedAndReplayed) {
  constexpr int kReplays = 4;
  on_ranks(2, [](Program& self) {
    const auto window = self.comm->window_allocate(4 * sizeof(float));
    const int peer = 1 - self.rank;
    auto source = at::full({4}, 0.0F);
    gpu::cpu_begin_capture(self.stream);
    window->put(source, peer, 0, /*async_op=*/false);
    window->signal(peer, /*async_op=*/false);
    window->wait_signal(peer, /*async_op=*/false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    for (int round = 1; round <= kReplays; ++round) {
      source.fill_(static_cast<float>(10 * round + self.rank));
      gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
      EXPECT_EQ(floats_of(*window)[3].item<float>(), static_cast<float>(10 * round + peer));
      self.comm->barrier(false);  // before the next put writes over it
      self.synchronize();
    }
    window->tensor_deregister();
  });
}

// Both go through one memory.
TEST_F(VendorWindows, PutsInGraphsOnTwoStreamsDoNotMix) {
  plan("slow=PutSignal:50000");
  on_ranks(2, [](Program& self) {
    const auto window = self.comm->window_allocate(8 * sizeof(float));
    const int peer = 1 - self.rank;
    const auto other = gpu::Runtime::cpu().create_stream(false);
    std::vector<std::shared_ptr<gpu::CpuGraph>> graphs;
    const std::vector<gpu::NativeStream> streams{self.stream, other};
    const std::vector<at::Tensor> sources{at::full({4}, 1.0F), at::full({4}, 2.0F)};
    for (size_t i = 0; i < 2; ++i) {
      const gpu::CpuStreamGuard current(streams[i]);
      gpu::cpu_begin_capture(streams[i]);
      window->put(sources[i], peer, 4 * i, /*async_op=*/false);
      graphs.push_back(gpu::cpu_end_capture(streams[i]));
    }
    for (size_t i = 0; i < 2; ++i) gpu::cpu_launch_graph(graphs[i], streams[i]);
    self.synchronize();
    gpu::Runtime::cpu().synchronize(other);
    self.comm->barrier(false);
    self.synchronize();
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_EQ(floats_of(*window)[4 * i].item<float>(), static_cast<float>(1 + i));
    gpu::Runtime::cpu().destroy_stream(other);
  });
}

TEST_F(VendorWindows, WhatIsDeregisteredIsGivenBackAndTheRestEndsWithTheCommunicator) {
  on_ranks(1, [](Program& self) {
    const auto address =
        dynamic_cast<const NcclApiBackend&>(*self.comm->getBackendImpl()).communicator_address();
    EXPECT_EQ(windows(address), 0);
    const auto first = self.comm->window_allocate(100);
    EXPECT_EQ(windows(address), 2) << "its own, and the one that puts go through";
    const auto second = self.comm->window_allocate(100);
    EXPECT_EQ(windows(address), 3);
    second->tensor_deregister();
    EXPECT_EQ(windows(address), 2);
    self.comm->finalize();
    EXPECT_EQ(windows(address), -1);
  });
}

TEST_F(VendorWindows, AWaitThatTimesOutEndsTheCommunicatorAndTheWaysOfItsSignals) {
  std::promise<void> over;
  on_ranks(2, [&, is_over = over.get_future().share()](Program& self) {
    const auto window = self.comm->window_allocate(8);
    self.comm->barrier(false);
    self.synchronize();
    if (self.rank == 1) {
      is_over.wait();
      return self.comm->abort();
    }
    const std::shared_ptr<void> at_end(nullptr, [&over](void*) { over.set_value(); });
    WaitSignalOptions options;
    options.timeout = std::chrono::milliseconds(300);
    const auto work = window->wait_signal(1, /*async_op=*/true, options);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    EXPECT_EQ(error.context().op, "wait_signal");
    EXPECT_TRUE(self.comm->isAborted());
    EXPECT_EQ(error_of([&] { window->signal(1, /*async_op=*/false); }).code(), Errc::kTimeout);
  });
}

TEST_F(VendorWindows, ALaunchThatDoesNotComeBackIsNamedByItsMethod) {
  plan("stick=PutSignal:1");
  std::promise<void> over;
  on_ranks(2, [&, is_over = over.get_future().share()](Program& self) {
    const auto window = self.comm->window_allocate(8);
    self.comm->barrier(false);
    self.synchronize();
    if (self.rank == 1) {
      is_over.wait();
      return self.comm->abort();
    }
    const std::shared_ptr<void> at_end(nullptr, [&over](void*) { over.set_value(); });
    PutOptions options;
    options.timeout = std::chrono::milliseconds(300);
    const auto error =
        error_of([&] { window->put(at::full({1}, 1.0F), 1, 0, /*async_op=*/false, options); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    EXPECT_EQ(error.context().op, "put");
  });
}

TEST_F(VendorWindows, AReportTellsOfTheCallsOnWindowsThatRanksAreInOrWereIn) {
  std::promise<void> over, has_put;
  on_ranks(2, [&, is_over = over.get_future().share(),
               put = has_put.get_future().share()](Program& self) {
    const auto window = self.comm->window_allocate(4 * sizeof(float));
    if (self.rank == 1) {
      window->put(at::full({3}, 1.0F), 0, 0, /*async_op=*/true)->hostSynchronize();
      has_put.set_value();
      is_over.wait();
      return self.comm->abort();
    }
    const std::shared_ptr<void> at_end(nullptr, [&over](void*) { over.set_value(); });
    put.wait();
    WaitSignalOptions options;
    options.timeout = std::chrono::milliseconds(300);
    const auto work = window->wait_signal(1, /*async_op=*/true, options);
    const std::string text = error_of([&] { work->hostSynchronize(); }).what();
    EXPECT_NE(text.find("; in wait_signal from rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("; after put of 12 bytes to rank 0"), std::string::npos) << text;
  });
}

TEST_F(VendorWindows, ARegistrationThatTheLibraryRefusesEndsTheCommunicator) {
  on_ranks(1, [](Program& self) {
    plan("fail=CommWindowRegister:1");
    const auto error = error_of([&] { self.comm->window_allocate(8); });
    EXPECT_EQ(error.code(), Errc::kVendor);
    EXPECT_TRUE(self.comm->isAborted());
  });
}

TEST_F(VendorWindows, AnAsynchronousWaitHoldsNothingUp) {
  on_ranks(3, [](Program& self) {
    const auto window = self.comm->window_allocate(sizeof(float));
    const int following = (self.rank + 1) % 3, before = (self.rank + 2) % 3;
    const auto first = window->wait_signal(before, /*async_op=*/true);
    const auto second = window->wait_signal(following, /*async_op=*/true);
    window->put(at::full({1}, static_cast<float>(self.rank)), following, 0, /*async_op=*/true);
    window->signal(following, /*async_op=*/true);
    window->signal(before, /*async_op=*/true);
    first->wait();
    second->wait();
    self.synchronize();
    EXPECT_EQ(floats_of(*window)[0].item<float>(), static_cast<float>(before));
    window->tensor_deregister();
  });
}

}  // namespace
}  // namespace torch::comms::nccl
