// Kernels in graphs, which share the memory of their communicator with each other and with calls.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <thread>

#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/ncclx/world.hpp"

namespace torch::comms::ncclx {
namespace {

class NcclxGraphs : public NcclxTest {
 protected:
  // A graph of an all_reduce of `tensor`.
  static std::shared_ptr<gpu::CpuGraph> captured(Program& self, at::Tensor& tensor, ReduceOp op) {
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, op, false);
    return gpu::cpu_end_capture(self.stream);
  }
};

// Those would take each other's data else, or find that ranks call different things.
TEST_F(NcclxGraphs, GraphsOnSeveralStreamsAndCallsRunInTheOrderOfTheirLaunches) {
  on_ranks(2, [](Program& self) {
    const auto& runtime = gpu::Runtime::cpu();
    auto one = at::full({4}, 1.0f), two = at::full({100}, 1.0f), three = at::full({7}, 1.0f);
    const auto sum = captured(self, one, ReduceOp::SUM);
    const auto maximum = captured(self, two, ReduceOp::MAX);
    auto* const other = runtime.create_stream(false);
    float want = 1;
    for (int round = 0; round < 100; ++round) {
      two.fill_(static_cast<float>(self.rank + round));
      // One rank is late here, the other one there.
      const auto gate = self.rank == 0 ? self.close_gate() : nullptr;
      gpu::cpu_launch_graph(sum, self.stream);
      gpu::cpu_launch_graph(maximum, other);
      {
        const gpu::CpuStreamGuard current(other);
        self.comm->all_reduce(three, ReduceOp::SUM, true)->wait();
      }
      gpu::cpu_launch_graph(maximum, self.stream);
      if (gate) gate->set_value();
      self.synchronize();
      runtime.synchronize(other);
      want *= 2;
      ASSERT_EQ(first(one), want) << round;
      ASSERT_EQ(first(three), want) << round;
      ASSERT_EQ(first(two), static_cast<float>(round + 1)) << round;
      if (round % 20 == 19) {
        one.fill_(1.0f);
        three.fill_(1.0f);
        want = 1;
      }
    }
    runtime.destroy_stream(other);
  });
}

TEST_F(NcclxGraphs, ACallThatWasUnderWayAtTheCaptureIsDoneBeforeALaunch) {
  on_ranks(2, [](Program& self) {
    auto one = at::full({4}, 1.0f), two = at::full({4}, 1.0f);
    auto* const other = gpu::Runtime::cpu().create_stream(false);
    const auto gate = self.close_gate();
    const auto work = self.comm->all_reduce(one, ReduceOp::SUM, true);
    std::shared_ptr<gpu::CpuGraph> graph;
    {
      const gpu::CpuStreamGuard current(other);
      Program there{self.rank, self.comm, other};
      graph = captured(there, two, ReduceOp::MAX);
      gpu::cpu_launch_graph(graph, other);
    }
    gate->set_value();
    work->wait();
    self.synchronize();
    gpu::Runtime::cpu().synchronize(other);
    EXPECT_EQ(first(one), 2);
    EXPECT_EQ(first(two), 1);
    gpu::Runtime::cpu().destroy_stream(other);
  });
}

TEST_F(NcclxGraphs, CallsWaitNoMoreOnceTheGraphsHaveGone) {
  on_ranks(2, [](Program& self) {
    auto tensor = at::full({4}, 0.0f);
    const auto waits_of_a_call = [&] {
      const auto before = gpu::cpu_call_counts().waits;
      self.comm->all_reduce(tensor, ReduceOp::SUM, false);
      return gpu::cpu_call_counts().waits - before;
    };
    waits_of_a_call();
    const auto few = waits_of_a_call();
    auto graph = captured(self, tensor, ReduceOp::SUM);
    EXPECT_EQ(waits_of_a_call(), few + 1);
    graph = nullptr;
    waits_of_a_call();
    EXPECT_EQ(waits_of_a_call(), few);
    self.synchronize();
  });
}

TEST_F(NcclxGraphs, MemoryOfAWindowStaysWithTheGraphsThatMayUseIt) {
  using Memory = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::array<std::optional<Memory>, 2> kept;
  on_ranks(2, [&](Program& self) {
    const auto rank = static_cast<size_t>(self.rank);
    for (const bool captures : {false, true}) {
      auto window = self.comm->window_allocate(256);
      const Memory memory(window->get_tensor()->storage().getWeakStorageImpl());
      std::shared_ptr<gpu::CpuGraph> graph;
      const auto exchange = [&] {
        window->signal(1 - self.rank, false);
        window->wait_signal(1 - self.rank, false);
      };
      exchange();
      if (captures) {
        gpu::cpu_begin_capture(self.stream);
        exchange();
        graph = gpu::cpu_end_capture(self.stream);
      }
      self.synchronize();
      window->tensor_deregister();
      window.reset();
      // Works of its calls may be looked at a moment later.
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(captures ? 0 : 20);
      while (!memory.expired() && std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
      EXPECT_EQ(memory.expired(), !captures);
      kept[rank] = memory;
      if (graph) gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
    }
    self.comm->finalize();
    self.comm = nullptr;
  });
  for (const auto& memory : kept)
    while (!memory->expired()) std::this_thread::yield();
}

TEST_F(NcclxGraphs, KernelsStayWithTheLastGraphAndGoWithIt) {
  std::weak_ptr<const void> kernels[2];
  std::shared_ptr<gpu::CpuGraph> graphs[2][2];
  at::Tensor tensors[2];
  on_ranks(2, [&](Program& self) {
    auto& tensor = tensors[self.rank] = at::full({4}, 1.0f);
    for (auto& graph : graphs[self.rank]) graph = captured(self, tensor, ReduceOp::SUM);
    kernels[self.rank] = backend_of(self).shared_kernels();
    self.comm->finalize();
    self.comm = nullptr;
  });
  for (auto& of_rank : graphs) of_rank[0] = nullptr;
  EXPECT_FALSE(kernels[0].expired());
  EXPECT_FALSE(kernels[1].expired());
  for (auto& of_rank : graphs) of_rank[1] = nullptr;
  for (const auto& each : kernels)
    while (!each.expired()) std::this_thread::yield();
}

}  // namespace
}  // namespace torch::comms::ncclx
