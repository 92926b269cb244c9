#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include <future>
#include <thread>
#include <vector>

#include "gpu/cpu_runtime.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::gpu {
namespace {

// A stream that ends with its test.
struct Stream {
  Stream() : handle(Runtime::cpu().create_stream(false)) {}
  ~Stream() { Runtime::cpu().destroy_stream(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  NativeStream handle;
};
struct Event {
  Event() : handle(Runtime::cpu().create_event()) {}
  ~Event() { Runtime::cpu().destroy_event(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  NativeEvent handle;
};

// Holds a stream up until it is opened.
class Gate {
 public:
  explicit Gate(NativeStream stream) {
    cpu_launch(stream, [open = open_.get_future().share()] { open.wait(); });
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> open_;
};

class CpuRuntime : public testing::Test {
 protected:
  const Runtime& cpu = Runtime::cpu();
};

TEST_F(CpuRuntime, AStreamRunsItsWorkInOrderAndNotOnTheCallersThread) {
  Stream stream;
  std::vector<int> seen;
  std::thread::id thread;
  Gate gate(stream.handle);
  for (int i = 0; i < 3; ++i) cpu_launch(stream.handle, [&seen, i] { seen.push_back(i); });
  cpu_launch(stream.handle, [&] { thread = std::this_thread::get_id(); });
  EXPECT_TRUE(seen.empty());
  gate.open();
  cpu.synchronize(stream.handle);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(CpuRuntime, TheDefaultStreamIsTheCallingThread) {
  std::thread::id thread;
  cpu_launch(nullptr, [&] { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST_F(CpuRuntime, AnEventIsDoneWhenWhatWasBeforeItIs) {
  Stream stream;
  Event event;
  EXPECT_TRUE(cpu.is_done(event.handle)) << "never recorded";
  Gate gate(stream.handle);
  cpu.record(event.handle, stream.handle);
  EXPECT_FALSE(cpu.is_done(event.handle));
  gate.open();
  cpu.synchronize_event(event.handle);
  EXPECT_TRUE(cpu.is_done(event.handle));
}

TEST_F(CpuRuntime, AStreamWaitsForAnotherWithoutTheHost) {
  Stream first, second;
  Event event, end;
  int value = 0;
  Gate gate(first.handle);
  cpu_launch(first.handle, [&] { value = 1; });
  cpu.record(event.handle, first.handle);
  cpu.wait(second.handle, event.handle);
  cpu_launch(second.handle, [&] { value *= 10; });
  cpu.record(end.handle, second.handle);
  EXPECT_FALSE(cpu.is_done(end.handle));
  gate.open();
  cpu.synchronize_event(end.handle);
  EXPECT_EQ(value, 10);
}

TEST_F(CpuRuntime, AWaitMeansTheRecordBeforeItNotALaterOne) {
  Stream first, second;
  Event event;
  cpu.record(event.handle, first.handle);
  cpu.wait(second.handle, event.handle);
  Gate gate(first.handle);
  cpu.record(event.handle, first.handle);
  cpu.synchronize(second.handle);  // does not wait for the gate
  EXPECT_FALSE(cpu.is_done(event.handle));
  gate.open();
  cpu.synchronize(first.handle);
}

TEST_F(CpuRuntime, ADestroyedStreamFinishesWhatItHas) {
  std::promise<void> done;
  {
    Stream stream;
    cpu_launch(stream.handle, [&] { done.set_value(); });
  }
  done.get_future().wait();
}

TEST_F(CpuRuntime, CopiesAndHostFunctionsRunOnTheStream) {
  Stream stream;
  auto* pinned = static_cast<int*>(cpu.allocate_pinned(sizeof(int)));
  *pinned = 7;
  int device = 0, after = 0;
  struct Seen {
    int *device, *after;
  } seen{&device, &after};
  cpu.copy_to_device(&device, pinned, sizeof(int), stream.handle);
  cpu.launch_host(
      stream.handle,
      [](void* argument) {
        auto* s = static_cast<Seen*>(argument);
        *s->after = *s->device + 1;
      },
      &seen);
  cpu.synchronize(stream.handle);
  cpu.free_pinned(pinned);
  EXPECT_EQ(after, 8);
}

TEST_F(CpuRuntime, ThereIsOneDevice) {
  EXPECT_EQ(cpu.device_count(), 1);
  cpu.set_device(0);
  EXPECT_EQ(cpu.device(), 0);
  EXPECT_THROW(cpu.set_device(1), CommError);
}

TEST_F(CpuRuntime, CapturedWorkRunsWhenTheGraphIsLaunched) {
  Stream stream;
  int runs = 0;
  cpu_begin_capture(stream.handle);
  EXPECT_NE(cpu.capture_of(stream.handle), 0u);
  cpu_launch(stream.handle, [&] { ++runs; });
  const auto graph = cpu_end_capture(stream.handle);
  EXPECT_EQ(cpu.capture_of(stream.handle), 0u);
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 3; ++i) cpu_launch_graph(graph, stream.handle);
  cpu.synchronize(stream.handle);
  EXPECT_EQ(runs, 3);
}

TEST_F(CpuRuntime, ACaptureSpreadsOverEventsToOtherStreams) {
  Stream origin, side;
  Event fork, join;
  int value = 0;
  cpu_begin_capture(origin.handle);
  cpu.record(fork.handle, origin.handle);
  cpu.wait(side.handle, fork.handle);
  EXPECT_EQ(cpu.capture_of(side.handle), cpu.capture_of(origin.handle));
  cpu_launch(side.handle, [&] { value = 5; });
  cpu.record(join.handle, side.handle);
  cpu.wait(origin.handle, join.handle);
  cpu_launch(origin.handle, [&] { value *= 2; });
  const auto graph = cpu_end_capture(origin.handle);
  cpu_launch_graph(graph, nullptr);
  EXPECT_EQ(value, 10);
}

TEST_F(CpuRuntime, ACaptureWithAForkedStreamThatNobodyJoinsIsRefused) {
  Stream origin, side;
  Event fork;
  cpu_begin_capture(origin.handle);
  cpu.record(fork.handle, origin.handle);
  cpu.wait(side.handle, fork.handle);
  cpu_launch(side.handle, [] {});
  EXPECT_THROW(cpu_end_capture(origin.handle), CommError);
  EXPECT_EQ(cpu.capture_of(side.handle), 0u);
}

TEST_F(CpuRuntime, CapturesAreIsolated) {
  Stream stream, other;
  Event inside, outside;
  cpu.record(outside.handle, other.handle);
  cpu_begin_capture(stream.handle);
  cpu.record(inside.handle, stream.handle);
  EXPECT_THROW(cpu.is_done(inside.handle), CommError);
  EXPECT_THROW(cpu.synchronize_event(inside.handle), CommError);
  EXPECT_THROW(cpu.synchronize(stream.handle), CommError);
  EXPECT_THROW(cpu.wait(stream.handle, outside.handle), CommError);
  cpu_end_capture(stream.handle);
}

TEST_F(CpuRuntime, TheCurrentStreamIsTheThreads) {
  Stream stream;
  EXPECT_EQ(cpu_current_stream(), nullptr);
  {
    const CpuStreamGuard guard(stream.handle);
    EXPECT_EQ(cpu_current_stream(), stream.handle);
    NativeStream elsewhere = stream.handle;
    std::thread([&] { elsewhere = cpu_current_stream(); }).join();
    EXPECT_EQ(elsewhere, nullptr);
  }
  EXPECT_EQ(cpu_current_stream(), nullptr);
}

}  // namespace
}  // namespace torch::comms::gpu
