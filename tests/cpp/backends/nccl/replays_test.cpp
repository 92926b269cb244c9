// Limits of operations that a graph replays.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "backends/nccl/replays.hpp"
#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::milliseconds;

// What is watched, on a stream of its own and with the test's time.
class ReplaysOfAGraph : public testing::Test {
 protected:
  ReplaysOfAGraph() {
    device = std::make_shared<Device>(gpu::Runtime::of_host(), at::Device(at::kCPU), false, 10);
    replays.emplace(device, true, milliseconds(1000));
    stream = device->own_stream();
  }
  // A graph of `count` operations, each of which waits for `gate` to be open.
  std::shared_ptr<gpu::CpuGraph> capture(int count, const milliseconds limit) {
    gpu::cpu_begin_capture(stream);
    const auto id = gpu::Runtime::cpu().capture_of(stream);
    for (int i = 0; i < count; ++i) {
      const Call call{OpName::all_reduce, name, 0, limit, true, false};
      const auto mark = replays->begin(call, stream, id);
      EXPECT_NE(mark.word, nullptr);
      gpu::cpu_launch(stream, [this] { gate.load()->wait(); });
      replays->end(mark, stream);
    }
    return gpu::cpu_end_capture(stream);
  }
  // Begins a replay that holds at its first operation; the promise lets it end.
  std::shared_ptr<std::promise<void>> begin_replay(const std::shared_ptr<gpu::CpuGraph>& graph) {
    auto open = std::make_shared<std::promise<void>>();
    future = std::make_shared<std::shared_future<void>>(open->get_future().share());
    gate.store(future.get());
    std::promise<void> reached;
    gpu::cpu_launch(stream, [&] { reached.set_value(); });
    gpu::cpu_launch_graph(graph, stream);
    reached.get_future().wait();
    return open;
  }
  const std::string name = "replayed";
  std::shared_ptr<Device> device;
  std::optional<Replays> replays;
  gpu::NativeStream stream;
  std::shared_ptr<std::shared_future<void>> future;
  std::atomic<std::shared_future<void>*> gate{nullptr};
};

TEST_F(ReplaysOfAGraph, AnOperationThatStaysLongerThanItsLimitIsLate) {
  const auto graph = capture(3, milliseconds(400));
  Clock::time_point now{};
  const auto tick = [&] { return replays->look(now += milliseconds(101)); };
  EXPECT_FALSE(tick().running) << "it was never launched";
  const auto gate = begin_replay(graph);
  while (!tick().running) {
  }
  // The look before that has seen it first.
  EXPECT_FALSE(tick().late);
  EXPECT_FALSE(tick().late);
  const auto seen = tick();
  ASSERT_TRUE(seen.late);
  EXPECT_EQ(seen.late->op, OpName::all_reduce);
  EXPECT_EQ(seen.late->limit, milliseconds(400));
  gate->set_value();
  gpu::Runtime::cpu().synchronize(stream);
  EXPECT_FALSE(tick().late);
}

TEST_F(ReplaysOfAGraph, AThousandLimitsOfReplaysInTimeAreFine) {
  const auto graph = capture(1, milliseconds(1000));
  Clock::time_point now{};
  const auto begin = now;
  for (int replay = 0; replay < 1200; ++replay) {
    const auto gate = begin_replay(graph);
    // Nearly its limit goes by while it runs.
    for (int look = 0; look < 3; ++look) EXPECT_FALSE(replays->look(now += milliseconds(300)).late);
    gate->set_value();
    gpu::Runtime::cpu().synchronize(stream);
    EXPECT_FALSE(replays->look(now).late);
  }
  EXPECT_GE(now - begin, std::chrono::seconds(1000));
}

TEST_F(ReplaysOfAGraph, WhatItTakesIsGivenBackWithTheGraph) {
  auto graph = capture(3000, milliseconds(1000));
  EXPECT_TRUE(replays->is_watching());
  const auto open = begin_replay(graph);
  open->set_value();
  gpu::Runtime::cpu().synchronize(stream);
  graph.reset();
  replays->look(Clock::time_point{} + std::chrono::seconds(5));
  EXPECT_FALSE(replays->is_watching());
  gpu::cpu_calls() = {};
  for (int again = 0; again < 5; ++again) {
    graph = capture(3000, milliseconds(1000));
    graph.reset();
    replays->look(Clock::time_point{} + std::chrono::seconds(10 * (again + 1)));
  }
  EXPECT_EQ(gpu::cpu_calls().pinned, 0u) << "what came back is used again";
  EXPECT_FALSE(replays->is_watching());
}

TEST_F(ReplaysOfAGraph, AGraphMayOutliveWhoeverWatchedIt) {
  const auto graph = capture(2, milliseconds(1000));
  replays.reset();
  const auto gate = begin_replay(graph);
  gate->set_value();
  gpu::Runtime::cpu().synchronize(stream);
}

class VendorReplays : public VendorTest {};

TEST_F(VendorReplays, AReplayWhosePeerNeverComesEndsAtItsLimitWithTheError) {
  std::promise<void> over;
  const auto is_over = over.get_future().share();
  on_ranks(2,
           [&](Program& self) {
             auto tensor = at::ones({4});
             AllReduceOptions options;
             options.timeout = milliseconds(300);
             gpu::cpu_begin_capture(self.stream);
             self.comm->all_reduce(tensor, ReduceOp::SUM, false, options);
             const auto graph = gpu::cpu_end_capture(self.stream);
             gpu::cpu_launch_graph(graph, self.stream);
             self.synchronize();
             if (self.rank == 1) return is_over.wait();
             std::promise<void> failed;
             const auto hook = self.comm->registerAbortHook([&] { failed.set_value(); });
             const auto begin = Clock::now();
             gpu::cpu_launch_graph(graph, self.stream);
             failed.get_future().wait();
             EXPECT_GE(Clock::now() - begin, milliseconds(300));
             self.synchronize();  // the library let go of it
             const auto error =
                 error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false); });
             EXPECT_EQ(error.code(), Errc::kTimeout);
             EXPECT_EQ(error.context().op, "all_reduce");
             EXPECT_NE(error.why().find("Graph monitor: collective TIMED OUT for graph"),
                       std::string::npos)
                 << error.why();
             EXPECT_NE(error.why().find("0.3 s"), std::string::npos) << error.why();
             EXPECT_TRUE(self.comm->isAborted());
             self.comm->finalize();
             over.set_value();
           },
           std::chrono::seconds(60), "nccl", {{"graph_timeout_check_interval_ms", "20"}});
}

TEST_F(VendorReplays, AFailureThatNobodyMeetsIsRaisedByFinalize) {
  std::promise<void> over;
  const auto is_over = over.get_future().share();
  on_ranks(2,
           [&](Program& self) {
             auto tensor = at::ones({4});
             AllReduceOptions options;
             options.timeout = milliseconds(300);
             gpu::cpu_begin_capture(self.stream);
             self.comm->all_reduce(tensor, ReduceOp::SUM, false, options);
             const auto graph = gpu::cpu_end_capture(self.stream);
             if (self.rank == 1) return is_over.wait();
             std::promise<void> failed;
             const auto hook = self.comm->registerAbortHook([&] { failed.set_value(); });
             gpu::cpu_launch_graph(graph, self.stream);
             failed.get_future().wait();
             EXPECT_EQ(error_of([&] { self.comm->finalize(); }).code(), Errc::kTimeout);
             self.synchronize();
             over.set_value();
           },
           std::chrono::seconds(60), "nccl", {{"graph_timeout_check_interval_ms", "20"}});
}

TEST_F(VendorReplays, AHintOrTheEnvironmentTurnsItOffAndNotesSaySo) {
  const auto notes_with = [&](const Hints& hints) {
    std::string text;
    on_ranks(
        1,
        [&](Program& self) {
          const auto& insight = dynamic_cast<const Insight&>(*self.comm->getBackendImpl());
          text = insight.notes().at("replays of graphs");
          self.comm->finalize();
        },
        std::chrono::seconds(60), "nccl", hints);
    return text;
  };
  EXPECT_EQ(notes_with({}), "operations in them have their limits");
  EXPECT_NE(notes_with({{"enable_cuda_graph_support", "false"}}).find("enable_cuda_graph_support"),
            std::string::npos);
  ::setenv("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING", "0", 1);
  EXPECT_NE(notes_with({}).find("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING"), std::string::npos);
  ::unsetenv("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING");
}

}  // namespace
}  // namespace torch::comms::nccl
