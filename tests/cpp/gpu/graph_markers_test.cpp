#include "gpu/graph_markers.hpp"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "gpu/cpu_runtime.hpp"

// Marks in graphs of host memory, which are what those of GPUs are.
namespace torch::comms::gpu {
namespace {

class Marks : public testing::Test {
 protected:
  Marks() { cpu_begin_capture(stream); }
  ~Marks() override {
    for (auto* const each : {stream, other}) Runtime::cpu().destroy_stream(each);
  }
  GraphMarker add(const GraphMarker* after, uint32_t value) {
    GraphMarker mark;
    EXPECT_EQ(marks->add(stream, after, &word, value, &mark), kSuccess);
    return mark;
  }
  bool change(NativeStream at, const GraphMarker& mark, uint32_t value) {
    bool done = false;
    EXPECT_EQ(marks->change(at, mark, value, &done), kSuccess);
    return done;
  }
  void replay(const std::shared_ptr<CpuGraph>& graph) {
    cpu_launch_graph(graph, other);
    Runtime::cpu().synchronize(other);
  }
  const GraphMarkerTable* const marks = graph_markers_of(Runtime::cpu());
  const NativeStream stream = Runtime::cpu().create_stream(false);
  const NativeStream other = Runtime::cpu().create_stream(false);
  uint32_t word = 0;
};

TEST_F(Marks, AMarkWritesWhenTheWorkBeforeItIsDone) {
  uint32_t seen = 99;
  add(nullptr, 5);
  cpu_launch(stream, [&] { seen = word; });
  add(nullptr, 6);
  const auto graph = cpu_end_capture(stream);
  EXPECT_EQ(word, 0u) << "it was not launched";
  replay(graph);
  EXPECT_EQ(seen, 5u);
  EXPECT_EQ(word, 6u);
}

TEST_F(Marks, AMarkIsChangedWhileTheStreamIsAtItsPlace) {
  const auto first = add(nullptr, 5);
  EXPECT_TRUE(change(stream, first, 7));
  cpu_launch(stream, [] {});
  EXPECT_FALSE(change(stream, first, 8));
  const auto second = add(&first, 9);
  EXPECT_TRUE(change(stream, second, 10));
  EXPECT_FALSE(change(stream, first, 11));
  replay(cpu_end_capture(stream));
  EXPECT_EQ(word, 10u);
}

TEST_F(Marks, AStreamThatWaitsForAnotherOneIsAtAPlaceOfItsOwn) {
  const auto& runtime = Runtime::cpu();
  auto* const event = runtime.create_event();
  const auto mark = add(nullptr, 5);
  runtime.record(event, stream);
  runtime.wait(other, event);
  EXPECT_TRUE(change(other, mark, 6)) << "nothing was launched on it";
  cpu_launch(other, [] {});
  EXPECT_FALSE(change(other, mark, 7));
  EXPECT_TRUE(change(stream, mark, 8));
  runtime.record(event, other);
  runtime.wait(stream, event);
  EXPECT_FALSE(change(stream, mark, 9)) << "it waits for more now";
  replay(cpu_end_capture(stream));
  EXPECT_EQ(word, 8u);
  runtime.destroy_event(event);
}

TEST_F(Marks, ALaunchWaitsForTheNewestRecordBeforeIt) {
  const auto& runtime = Runtime::cpu();
  auto* const event = runtime.create_event();
  std::vector<int> order;
  const auto graph_of = [&](int number) {
    GraphMarker end;
    EXPECT_EQ(marks->wait(stream, event), kSuccess);
    cpu_launch(stream, [&order, number] { order.push_back(number); });
    EXPECT_EQ(marks->record(stream, event, &end), kSuccess);
    cpu_launch(stream, [&order, number] { order.push_back(10 * number); });
    EXPECT_EQ(marks->record(stream, event, &end), kSuccess);  // where it is to be in the end
    return cpu_end_capture(stream);
  };
  const auto first = graph_of(1);
  cpu_begin_capture(stream);
  const auto second = graph_of(2);
  for (int round = 0; round < 50; ++round) {
    order.clear();
    std::promise<void> open;
    cpu_launch(stream, [gate = open.get_future().share()] { gate.wait(); });
    cpu_launch_graph(first, stream);
    cpu_launch_graph(second, other);
    open.set_value();
    runtime.synchronize_event(event);
    EXPECT_EQ(order, (std::vector<int>{1, 10, 2, 20})) << round;
  }
  runtime.destroy_event(event);
}

TEST_F(Marks, OutsideOfACaptureThereAreNone) {
  const auto mark = add(nullptr, 5);
  cpu_end_capture(stream);
  GraphMarker none;
  bool done = true;
  EXPECT_NE(marks->add(stream, nullptr, &word, 1, &none), kSuccess);
  EXPECT_EQ(none.node, nullptr);
  EXPECT_NE(marks->change(stream, mark, 1, &done), kSuccess);
}

}  // namespace
}  // namespace torch::comms::gpu
