// Limits of operations that a graph replays.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "backends/nccl/graphs/graph_replay_monitor.hpp"
#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::milliseconds;

// What is watched, on a stream of its own and with the test's time.
class ReplaysOfAGraph : public testing::Test {
 protected:
  ReplaysOfAGraph() {
    device =
        std::make_shared<NcclDevice>(gpu::Runtime::shared_cpu(), at::Device(at::kCPU), false, 10);
    replays.emplace(device, true, milliseconds(1000));
    stream = device->own_stream();
  }
  // A graph of what `body` does.
  std::shared_ptr<gpu::CpuGraph> captured(const std::function<void()>& body) {
    gpu::cpu_begin_capture(stream);
    body();
    return gpu::cpu_end_capture(stream);
  }
  GraphReplayMonitor::TrackedOperation begin(OpName op, milliseconds limit) {
    const NcclCall call{op, name, 0, limit, limit_is_own, false};
    auto tracked = replays->begin(call, stream, gpu::Runtime::cpu().capture_of(stream));
    EXPECT_NE(tracked, nullptr);
    return tracked;
  }
  // One that takes until what it waits for is there.
  void operation(OpName op, milliseconds limit, const std::function<void()>& wait) {
    auto tracked = begin(op, limit);
    gpu::cpu_launch(stream, wait);
    replays->end(tracked, stream);
  }
  // A graph of `count` operations, each of which waits for `gate` to be open; `between` runs before
  // each but the first.
  std::shared_ptr<gpu::CpuGraph> capture(int count, const milliseconds limit,
                                         const std::function<void()>& between = {}) {
    return captured([&] {
      for (int i = 0; i < count; ++i) {
        if (between && i > 0) gpu::cpu_launch(stream, between);
        operation(OpName::all_reduce, limit, [this] { gate.load()->wait(); });
      }
    });
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
  bool limit_is_own = true;
  std::shared_ptr<NcclDevice> device;
  std::optional<GraphReplayMonitor> replays;
  gpu::NativeStream stream;
  std::shared_ptr<std::shared_future<void>> future;
  std::atomic<std::shared_future<void>*> gate{nullptr};
};

TEST_F(ReplaysOfAGraph, AnOperationThatStaysLongerThanItsLimitIsLate) {
  const auto graph = capture(3, milliseconds(400));
  Clock::time_point now{};
  const auto tick = [&] { return replays->poll(now += milliseconds(101)); };
  EXPECT_FALSE(tick().is_running) << "it was never launched";
  const auto gate = begin_replay(graph);
  while (!tick().is_running) {
  }
  // The look before that has seen it first.
  EXPECT_FALSE(tick().late);
  EXPECT_FALSE(tick().late);
  const auto seen = tick();
  ASSERT_TRUE(seen.late);
  EXPECT_EQ(seen.late->op, OpName::all_reduce);
  EXPECT_EQ(seen.late->timeout, milliseconds(400));
  gate->set_value();
  gpu::Runtime::cpu().synchronize(stream);
  EXPECT_FALSE(tick().late);
}

TEST_F(ReplaysOfAGraph, ADefaultLimitMayBeSetBetweenReplays) {
  limit_is_own = false;
  const auto graph = capture(1, milliseconds(400));
  Clock::time_point now{};
  const auto is_late_after = [&](milliseconds time) {
    const auto gate = begin_replay(graph);
    while (!replays->poll(now += std::chrono::seconds(1)).is_running) {
    }
    const auto seen = replays->poll(now += time);
    gate->set_value();
    gpu::Runtime::cpu().synchronize(stream);
    replays->poll(now += std::chrono::seconds(1));
    return seen.late.has_value();
  };
  EXPECT_TRUE(is_late_after(std::chrono::seconds(2)));
  replays->set_default_timeout(std::chrono::seconds(60));
  EXPECT_FALSE(is_late_after(std::chrono::seconds(2)));
  EXPECT_TRUE(is_late_after(std::chrono::seconds(61)));
}

TEST_F(ReplaysOfAGraph, AThousandLimitsOfReplaysInTimeAreFine) {
  const auto graph = capture(1, milliseconds(1000));
  Clock::time_point now{};
  const auto begin = now;
  for (int replay = 0; replay < 1200; ++replay) {
    const auto gate = begin_replay(graph);
    // Nearly its limit goes by while it runs.
    for (int look = 0; look < 3; ++look) EXPECT_FALSE(replays->poll(now += milliseconds(300)).late);
    gate->set_value();
    gpu::Runtime::cpu().synchronize(stream);
    EXPECT_FALSE(replays->poll(now).late);
  }
  EXPECT_GE(now - begin, std::chrono::seconds(1000));
}

TEST_F(ReplaysOfAGraph, WhatItTakesIsGivenBackWithTheGraph) {
  const auto apart = [] {};
  auto graph = capture(3000, milliseconds(1000), apart);
  EXPECT_TRUE(replays->is_watching());
  const auto open = begin_replay(graph);
  open->set_value();
  gpu::Runtime::cpu().synchronize(stream);
  graph.reset();
  replays->poll(Clock::time_point{} + std::chrono::seconds(5));
  EXPECT_FALSE(replays->is_watching());
  gpu::cpu_call_counts() = {};
  for (int again = 0; again < 5; ++again) {
    graph = capture(3000, milliseconds(1000), apart);
    graph.reset();
    replays->poll(Clock::time_point{} + std::chrono::seconds(10 * (again + 1)));
  }
  EXPECT_EQ(gpu::cpu_call_counts().pinned, 0u) << "what came back is used again";
  EXPECT_FALSE(replays->is_watching());
}

TEST_F(ReplaysOfAGraph, AGraphMayOutliveWhoeverWatchedIt) {
  const auto graph = capture(2, milliseconds(1000));
  replays.reset();
  const auto gate = begin_replay(graph);
  gate->set_value();
  gpu::Runtime::cpu().synchronize(stream);
}

TEST_F(ReplaysOfAGraph, OperationsInARowHaveOneMarkEachAndOneMore) {
  gpu::cpu_call_counts() = {};
  capture(10, milliseconds(1000));
  EXPECT_EQ(gpu::cpu_call_counts().graph_markers, 11u);
  gpu::cpu_call_counts() = {};
  capture(10, milliseconds(1000), [] {});
  EXPECT_EQ(gpu::cpu_call_counts().graph_markers, 20u) << "each has its own beginning";
}

// Steps that a test takes one by one.
class Steps {
 public:
  // What a graph does at a step: tells that it is there, and waits until the test goes on.
  std::function<void()> operator[](size_t step) {
    return [this, step] {
      there_[step].set_value();
      go_on_[step].get_future().wait();
    };
  }
  void reach(size_t step) { there_[step].get_future().wait(); }
  void leave(size_t step) { go_on_[step].set_value(); }

 private:
  std::array<std::promise<void>, 8> there_, go_on_;
};

TEST_F(ReplaysOfAGraph, EachOfARowHasItsOwnTimeAndItsOwnLimit) {
  Steps steps;
  const auto graph = captured([&] {
    operation(OpName::all_reduce, milliseconds(400), steps[0]);
    operation(OpName::barrier, milliseconds(800), steps[1]);
    operation(OpName::broadcast, milliseconds(400), steps[2]);
  });
  Clock::time_point now{};
  gpu::cpu_launch_graph(graph, stream);
  for (const size_t step : {0, 1, 2}) {
    steps.reach(step);
    // The first look sees that another one runs. Nearly the limit of the first and the last goes
    // by.
    EXPECT_FALSE(replays->poll(now += milliseconds(101)).is_running) << step;
    for (int look = 0; look < 3; ++look) {
      const auto seen = replays->poll(now += milliseconds(101));
      EXPECT_TRUE(seen.is_running) << step;
      EXPECT_FALSE(seen.late) << step;
    }
    if (step == 1) {
      EXPECT_FALSE(replays->poll(now += milliseconds(400)).late);
      const auto seen = replays->poll(now += milliseconds(101));
      ASSERT_TRUE(seen.late);
      EXPECT_EQ(seen.late->op, OpName::barrier);
      EXPECT_EQ(seen.late->timeout, milliseconds(800));
    }
    steps.leave(step);
  }
  gpu::Runtime::cpu().synchronize(stream);
  EXPECT_FALSE(replays->poll(now += milliseconds(101)).is_running);
  EXPECT_FALSE(replays->poll(now += milliseconds(500)).is_running);
}

TEST_F(ReplaysOfAGraph, TimeBetweenOperationsIsNoOperations) {
  Steps steps;
  const auto graph = captured([&] {
    operation(OpName::all_reduce, milliseconds(400), steps[0]);
    gpu::cpu_launch(stream, steps[1]);
    operation(OpName::barrier, milliseconds(400), steps[2]);
  });
  Clock::time_point now{};
  gpu::cpu_launch_graph(graph, stream);
  for (const size_t step : {0, 1, 2}) {
    steps.reach(step);
    replays->poll(now += milliseconds(101));
    EXPECT_EQ(replays->poll(now += milliseconds(101)).is_running, step != 1) << step;
    EXPECT_EQ(replays->poll(now += milliseconds(401)).late.has_value(), step != 1) << step;
    steps.leave(step);
  }
  gpu::Runtime::cpu().synchronize(stream);
}

TEST_F(ReplaysOfAGraph, OneWhoseLaunchFailedIsNotWatchedAndTheNextIs) {
  Steps steps;
  const auto graph = captured([&] {
    operation(OpName::all_reduce, milliseconds(400), [] {});
    auto tracked = begin(OpName::barrier, milliseconds(400));
    replays->discard(tracked);
    EXPECT_EQ(tracked, nullptr);
    gpu::cpu_launch(stream, steps[0]);
    operation(OpName::broadcast, milliseconds(400), steps[1]);
  });
  Clock::time_point now{};
  gpu::cpu_launch_graph(graph, stream);
  for (const size_t step : {0, 1}) {
    steps.reach(step);
    replays->poll(now += milliseconds(101));
    EXPECT_EQ(replays->poll(now += milliseconds(101)).is_running, step == 1) << step;
    const auto late = replays->poll(now += milliseconds(401)).late;
    EXPECT_EQ(late.has_value(), step == 1) << step;
    EXPECT_TRUE(!late || late->op == OpName::broadcast) << step;
    steps.leave(step);
  }
  gpu::Runtime::cpu().synchronize(stream);
}

TEST_F(ReplaysOfAGraph, LooksTellWhatHasBegunAndEnded) {
  // Two in a row, and one that is not of it.
  const auto graph = captured([&] {
    for (int i = 0; i < 3; ++i) {
      if (i == 2) gpu::cpu_launch(stream, [] {});
      operation(OpName::all_reduce, milliseconds(400), [this] { gate.load()->wait(); });
    }
  });
  replays->collect_events();
  Clock::time_point now{};
  const auto look = [&] {
    const auto running = replays->poll(now += milliseconds(101)).is_running;
    std::string events;
    replays->deliver_events([&](const GraphReplayMonitor::ReplayEvent& event) {
      EXPECT_EQ(event.stream, stream);
      EXPECT_NE(event.graph, 0u);
      events += std::to_string(event.replay) + "/" + std::to_string(event.index) +
                (event.is_begin ? "S " : "E ");
    });
    return std::pair(running, events);
  };
  EXPECT_EQ(look().second, "") << "it was never launched";
  const auto open = begin_replay(graph);
  std::string events;
  while (events.empty()) events = look().second;
  EXPECT_EQ(events, "0/0S ");
  EXPECT_EQ(look(), std::pair(true, std::string()));
  open->set_value();
  gpu::Runtime::cpu().synchronize(stream);
  EXPECT_EQ(look().second, "0/0E 0/1S 0/1E 0/2S 0/2E ");
  EXPECT_EQ(look().second, "");
  for (int replay = 0; replay < 2; ++replay) gpu::cpu_launch_graph(graph, stream);
  gpu::Runtime::cpu().synchronize(stream);
  EXPECT_EQ(look().second, "1/0S 1/0E 1/1S 1/1E 1/2S 1/2E ") << "two that went by are one";
  EXPECT_EQ(look().second, "");
}

class VendorReplays : public VendorTest {};

TEST_F(VendorReplays, OperationsInARowShareTheirMarksHoweverTheyAreCalled) {
  on_ranks(1, [&](Program& self) {
    auto tensor = at::ones({4});
    const auto marks_of = [&](const std::function<void()>& body) {
      gpu::cpu_call_counts() = {};
      gpu::cpu_begin_capture(self.stream);
      body();
      gpu::cpu_end_capture(self.stream);
      return gpu::cpu_call_counts().graph_markers;
    };
    const auto reduce = [&](bool async_op) {
      self.comm->all_reduce(tensor, ReduceOp::SUM, async_op)->wait();
    };
    EXPECT_EQ(marks_of([&] {
                for (int i = 0; i < 5; ++i) reduce(i % 2 == 0);
              }),
              6u);
    EXPECT_EQ(marks_of([&] {
                reduce(false);
                gpu::cpu_launch(self.stream, [] {});
                reduce(false);
                reduce(false);
              }),
              5u);
    self.comm->finalize();
  });
}

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

TEST_F(VendorReplays, HooksAreToldOfThem) {
  on_ranks(
      1,
      [&](Program& self) {
        auto tensor = at::ones({4});
        std::promise<void> over;
        std::string events;
        const auto thrower =
            self.comm->registerGraphReplayHook([](auto...) { throw std::runtime_error("no"); });
        const auto hook =
            self.comm->registerGraphReplayHook([&](uint64_t graph, uint64_t replay, uint64_t stream,
                                                   uint64_t index, std::string_view event) {
              EXPECT_NE(graph, 0u);
              EXPECT_EQ(stream, reinterpret_cast<uintptr_t>(self.stream));
              events += std::to_string(replay) + "/" + std::to_string(index);
              events += event;
              if (events.ends_with("0/1E")) over.set_value();
            });
        gpu::cpu_begin_capture(self.stream);
        for (int i = 0; i < 2; ++i) self.comm->all_reduce(tensor, ReduceOp::SUM, false);
        const auto graph = gpu::cpu_end_capture(self.stream);
        gpu::cpu_launch_graph(graph, self.stream);
        over.get_future().wait();
        EXPECT_EQ(events, "0/0S0/0E0/1S0/1E");
        for (const auto& each : {hook.get(), thrower.get()}) each->remove();
        gpu::cpu_launch_graph(graph, self.stream);
        self.synchronize();
        self.comm->finalize();
        EXPECT_EQ(events, "0/0S0/0E0/1S0/1E");
      },
      std::chrono::seconds(60), "nccl", {{"graph_timeout_check_interval_ms", "20"}});
}

TEST_F(VendorReplays, AHintOrTheEnvironmentTurnsItOffAndNotesSaySo) {
  const auto notes_with = [&](const Hints& hints) {
    std::string text;
    on_ranks(
        1,
        [&](Program& self) {
          const auto& diagnostics =
              dynamic_cast<const BackendDiagnostics&>(*self.comm->getBackendImpl());
          text = diagnostics.describe_entries().at("replays of graphs");
          self.comm->finalize();
        },
        std::chrono::seconds(60), "nccl", hints);
    return text;
  };
  EXPECT_EQ(notes_with({}), "timeouts of operations are watched");
  EXPECT_NE(notes_with({{"enable_cuda_graph_support", "false"}}).find("enable_cuda_graph_support"),
            std::string::npos);
  ::setenv("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING", "0", 1);
  EXPECT_NE(notes_with({}).find("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING"), std::string::npos);
  ::unsetenv("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING");
}

}  // namespace
}  // namespace torch::comms::nccl
