#include "gpu/runtime.hpp"

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include "gpu/cuda_library.hpp"
#include "gpu/driver_entry_points.hpp"
#include "gpu/event_pool.hpp"
#include "gpu/pinned_pool.hpp"

namespace torch::comms::gpu {
namespace {

constexpr const char* kAsListed[] = {nullptr};

CommError refusal(const RuntimeRow& row) {
  try {
    Runtime::load(row);
  } catch (const CommError& e) {
    return e;
  }
  throw std::logic_error("it was loaded");
}

TEST(GpuRuntime, AMissingLibraryIsNamedWithWhatWasLookedFor) {
  static constexpr const char* kSonames[] = {"libtc-not-there.so.1", nullptr};
  const auto error = refusal({"cuda", "cuda", "libtc-not-there.so", kSonames, kAsListed});
  EXPECT_EQ(error.code(), Errc::kBackendUnavailable);
  EXPECT_NE(error.why().find("libtc-not-there.so.1"), std::string::npos) << error.why();
}

TEST(GpuRuntime, ALibraryWithoutTheFunctionsIsRefusedNamingOne) {
  static constexpr const char* kSonames[] = {"libm.so.6", nullptr};
  const auto error = refusal({"cuda", "cuda", "libm.so", kSonames, kAsListed});
  EXPECT_EQ(error.code(), Errc::kBackendUnavailable);
  EXPECT_NE(error.why().find("cudaGetErrorString"), std::string::npos) << error.why();
}

TEST(GpuRuntime, NamesOfAVendorsOwnAreSpelledItsWay) {
  static constexpr const char* kSonames[] = {"libm.so.6", nullptr};
  static constexpr const char* kSpellings[] = {"GetErrorString", "SayError", nullptr};
  const auto error = refusal({"hip", "hip", "libm.so", kSonames, kSpellings});
  EXPECT_NE(error.why().find("hipSayError"), std::string::npos) << error.why();
}

TEST(GpuRuntime, WithoutADriverThereAreNoDevicesAndAReason) {
  try {
    const auto cuda = Runtime::load(kCuda);
    std::string why;
    if (cuda.device_count(&why) > 0) GTEST_SKIP() << "this machine has a GPU";
    EXPECT_FALSE(why.empty());
    EXPECT_FALSE(cuda.path().empty());
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kBackendUnavailable);
    GTEST_SKIP() << e.what();
  }
}

// A driver whose functions say what `driver_says`, and count how often they are asked.
int driver_says = kSuccess, driver_asked = 0, runtime_asked = 0;
// The current one, and whether a thread has one at all.
int device = 0;
bool has_device = true;
int of_driver() {
  ++driver_asked;
  return driver_says;
}
int of_runtime() {
  ++runtime_asked;
  return kSuccess;
}

class GpuShortcuts : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_says = kSuccess, driver_asked = runtime_asked = device = 0, has_device = true;
  }

  static Runtime runtime() {
    RuntimeTable table = Runtime::cpu().table();
    table.EventRecord = [](NativeEvent, NativeStream) { return of_runtime(); };
    table.EventQuery = [](NativeEvent) { return of_runtime(); };
    table.StreamWaitEvent = [](NativeStream, NativeEvent, unsigned) { return of_runtime(); };
    table.StreamGetCaptureInfo = [](NativeStream, int* status, CaptureId* id, void*, void*, void*,
                                    void*) {
      *status = 1;
      *id = 7;
      return of_runtime();
    };
    table.ThreadExchangeStreamCaptureMode = [](int*) { return of_runtime(); };
    table.StreamSynchronize = [](NativeStream) { return of_runtime(); };
    table.StreamDestroy = [](NativeStream) { return of_runtime(); };
    table.EventDestroy = [](NativeEvent) { return of_runtime(); };
    table.FreeHost = [](void*) { return of_runtime(); };
    table.GetDevice = [](int* index) {
      *index = device;
      return kSuccess;
    };
    table.SetDevice = [](int index) {
      device = index;
      has_device = true;
      return kSuccess;
    };
    DriverEntryPoints shortcuts;
    shortcuts.EventRecord = [](NativeEvent, NativeStream) { return of_driver(); };
    shortcuts.EventQuery = [](NativeEvent) { return of_driver(); };
    shortcuts.StreamWaitEvent = [](NativeStream, NativeEvent, unsigned) { return of_driver(); };
    shortcuts.StreamIsCapturing = [](NativeStream stream, int* status) {
      *status = stream == nullptr ? 0 : 1;
      return of_driver();
    };
    shortcuts.CtxGetCurrent = [](void** context) {
      *context = has_device ? &driver_says : nullptr;
      return driver_says;
    };
    shortcuts.ThreadExchangeStreamCaptureMode = [](int*) { return of_driver(); };
    shortcuts.StreamSynchronize = [](NativeStream) { return of_driver(); };
    shortcuts.StreamDestroy = [](NativeStream) { return of_driver(); };
    shortcuts.EventDestroy = [](NativeEvent) { return of_driver(); };
    shortcuts.FreeHost = [](void*) { return of_driver(); };
    return {"fake", "", table, shortcuts};
  }
  // All four questions of an operation.
  static void ask(const Runtime& runtime) {
    runtime.record(nullptr, nullptr);
    runtime.wait(nullptr, nullptr);
    EXPECT_TRUE(runtime.is_done(nullptr));
    runtime.capture_of(nullptr);
  }
};

TEST_F(GpuShortcuts, WhatTheDriverDoesTheRuntimeIsNotAsked) {
  ask(runtime());
  EXPECT_EQ(driver_asked, 4);
  EXPECT_EQ(runtime_asked, 0);
  EXPECT_EQ(runtime().context(), &driver_says);
}

TEST_F(GpuShortcuts, WhatTheDriverRefusesTheRuntimeDecides) {
  constexpr int kNoContext = 201;
  driver_says = kNoContext;
  ask(runtime());
  EXPECT_EQ(driver_asked, 4);
  EXPECT_EQ(runtime_asked, 4);
  EXPECT_EQ(runtime().context(), nullptr);
}

// The runtime's functions of these names choose the first device in a thread that has none.
TEST_F(GpuShortcuts, WhatThreadsOfOursDoWithoutADeviceIsTheDrivers) {
  const auto live_without_device = [](const Runtime& runtime) {
    const CaptureModeGuard mode(runtime);
    runtime.synchronize(nullptr);
    runtime.destroy_stream(nullptr);
    runtime.destroy_event(nullptr);
    runtime.free_pinned(&driver_says);
  };
  live_without_device(runtime());
  EXPECT_EQ(driver_asked, 6);
  EXPECT_EQ(runtime_asked, 0);
  constexpr int kNoContext = 201;
  driver_says = kNoContext;
  live_without_device(runtime());
  EXPECT_EQ(runtime_asked, 6);
}

// It may be that of something launched before, and the handle is gone.
TEST_F(GpuShortcuts, WhatFailsIsNotTakenAwayTwice) {
  constexpr int kIllegalAddress = 700;
  driver_says = kIllegalAddress;
  runtime().destroy_stream(nullptr);
  runtime().destroy_event(nullptr);
  runtime().free_pinned(&driver_says);
  EXPECT_EQ(driver_asked, 3);
  EXPECT_EQ(runtime_asked, 0);
}

TEST_F(GpuShortcuts, AThreadGoesBackToItsDeviceAndToNoneThatItNeverHad) {
  constexpr int kWanted = 3, kBefore = 1;
  device = kBefore;
  {
    const auto fake = runtime();
    const DeviceGuard guard(fake, kWanted);
    EXPECT_EQ(device, kWanted);
  }
  EXPECT_EQ(device, kBefore);
  device = 0;
  has_device = false;
  {
    const auto fake = runtime();
    const DeviceGuard guard(fake, kWanted);
    EXPECT_EQ(device, kWanted);
  }
  EXPECT_EQ(device, kWanted);
}

TEST_F(GpuShortcuts, AnEventThatIsNotDoneIsNoFailure) {
  driver_says = kNotReady;
  EXPECT_FALSE(runtime().is_done(nullptr));
  EXPECT_EQ(runtime_asked, 0);
}

TEST_F(GpuShortcuts, WhichCaptureItIsOnlyTheRuntimeSays) {
  EXPECT_EQ(runtime().capture_of(nullptr), 0u);
  EXPECT_EQ(runtime().capture_of(&driver_says), 7u);
  EXPECT_EQ(runtime_asked, 1);
}

TEST(GpuRuntime, WithoutADriverThereAreNoShortcuts) {
  if (Runtime::cpu().context() != nullptr) FAIL() << "host memory has no contexts";
  const auto shortcuts = cuda_driver_entry_points();
  std::string why;
  if (cuda_driver_function("EventRecord", why) != nullptr)
    EXPECT_NE(shortcuts.EventRecord, nullptr);
  else
    EXPECT_EQ(shortcuts.EventRecord, nullptr);
}

TEST(EventPool, AnEventIsUsedAgain) {
  const auto pool = EventPool::make(Runtime::cpu(), 2);
  NativeEvent first = nullptr;
  {
    const auto lease = pool->acquire();
    first = lease.get();
    EXPECT_EQ(pool->idle(), 0u);
  }
  EXPECT_EQ(pool->idle(), 1u);
  EXPECT_EQ(pool->acquire().get(), first);
}

TEST(EventPool, KeepsNoMoreThanItMay) {
  const auto pool = EventPool::make(Runtime::cpu(), 2);
  {
    const auto a = pool->acquire(), b = pool->acquire(), c = pool->acquire();
  }
  EXPECT_EQ(pool->idle(), 2u);
}

TEST(EventPool, ASpoiltEventDoesNotComeBack) {
  const auto pool = EventPool::make(Runtime::cpu(), 2);
  {
    auto lease = pool->acquire();
    lease.discard();
  }
  EXPECT_EQ(pool->idle(), 0u);
}

TEST(EventPool, LivesAsLongAsOneOfItsEvents) {
  auto pool = EventPool::make(Runtime::cpu(), 2);
  auto lease = pool->acquire();
  pool.reset();
  Runtime::cpu().record(lease.get(), nullptr);
  EXPECT_TRUE(Runtime::cpu().is_done(lease.get()));
}

TEST(EventPool, MayBeLeftToEventsThatGoOnSeveralThreads) {
  for (int turn = 0; turn < 100; ++turn) {
    auto pool = EventPool::make(Runtime::cpu(), 1);
    std::vector<EventPool::Lease> leases;
    for (int i = 0; i < 4; ++i) leases.push_back(pool->acquire());
    leases.front().discard();
    pool.reset();
    std::latch together(4);
    std::vector<std::jthread> threads;
    for (auto& lease : leases)
      threads.emplace_back([&together, own = std::move(lease)]() mutable {
        together.arrive_and_wait();
        own = {};
      });
  }
}

TEST(PinnedPool, ABlockIsUsedAgainForWhatFits) {
  const auto pool = PinnedPool::make(Runtime::shared_cpu(), 1 << 20);
  void* first = nullptr;
  {
    const auto block = pool->acquire(50'000);
    first = block.get();
    EXPECT_EQ(pool->idle_bytes(), 0u);
  }
  EXPECT_EQ(pool->idle_bytes(), 65'536u);
  EXPECT_EQ(pool->acquire(60'000).get(), first);
  EXPECT_NE(pool->acquire(100).get(), first) << "far too large for that";
}

TEST(PinnedPool, KeepsNoMoreThanItMay) {
  const auto pool = PinnedPool::make(Runtime::shared_cpu(), 3 * 4096);
  {
    std::vector<std::shared_ptr<void>> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(pool->acquire(1));
  }
  EXPECT_EQ(pool->idle_bytes(), 3u * 4096);
}

TEST(PinnedPool, LivesAsLongAsOneOfItsBlocks) {
  auto pool = PinnedPool::make(Runtime::shared_cpu(), 1 << 20);
  const auto block = pool->acquire(4);
  pool.reset();
  *static_cast<int*>(block.get()) = 7;
  EXPECT_EQ(*static_cast<int*>(block.get()), 7);
}

}  // namespace
}  // namespace torch::comms::gpu
