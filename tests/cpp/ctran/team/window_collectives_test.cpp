#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ctran/kernels/windows/window_copies.hpp"
#include "ctran/team/device_window.hpp"
#include "ctran/team/member.hpp"

// Collectives into windows of a team, over the stand-in's kernels.
namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::CopyMethod;
using kernels::KernelCall;
using kernels::StopReason;
using test::cpu;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;

class RegionsTest : public test::KernelsTest {};

constexpr size_t kBytes = size_t{4} << 20;
// For two ranks' parts that are worth a stream beside the call's.
constexpr size_t kLongBytes = 2 * kernels::kForkMinBytes + 4096;

// A rank with two windows of the same size.
struct Member : test::TeamMember {
  Member(int rank, int size, const AllGatherStrings& exchange, size_t bytes = kBytes,
         const std::shared_ptr<const gpu::Runtime>& runtime = gpu::Runtime::shared_cpu())
      : TeamMember(rank, size, exchange, runtime), bytes(bytes) {
    for (int i = 0; i < 2; ++i) {
      memory.push_back(std::make_unique<gpu::ShareableMemory>(
          gpu::ShareableMemory::create(gpu::Driver::of(cpu), cpu, 0, bytes)));
      auto made = DeviceWindow::create(team, {own(i), bytes, 0, ""}, "", exchange);
      require(made.window != nullptr, made.unavailable_reason.c_str());
      windows.push_back(std::move(made.window));
    }
  }
  std::byte* own(int i) const {
    return static_cast<std::byte*>(memory[static_cast<size_t>(i)]->at());
  }
  // Of `count` bytes, to a place of this rank's own.
  KernelCall call(Collective collective, size_t count, const void* input, std::byte* output) const {
    KernelCall made{};
    made.collective = collective;
    made.dtype = Dtype::kUInt8;
    made.count = count;
    made.root = size - 1;
    made.input = input;
    made.output = output;
    return made;
  }
  void launch(const KernelCall& call, int window = 0,
              CopyMethod copy_method = CopyMethod::kAutomatic) {
    team->launch(windows[static_cast<size_t>(window)]->make_collective_call(call, copy_method),
                 stream);
  }
  void finish() const { cpu.synchronize(stream); }

  const size_t bytes;
  std::vector<std::unique_ptr<gpu::ShareableMemory>> memory;
  std::vector<std::unique_ptr<DeviceWindow>> windows;
};

// What rank `from` has as its input, of so many bytes.
std::vector<std::byte> sample(int from, size_t size_bytes) {
  std::vector<std::byte> data(size_bytes);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>((i * 7 + i / 1021) % 251 + static_cast<size_t>(from));
  return data;
}

// All three, of `count` bytes a part, and what is beside the outputs.
void check_every_collective(Member& member, size_t count, CopyMethod copy_method) {
  const bool is_one_place = copy_method == CopyMethod::kCopyEngine;
  const auto ranks = static_cast<size_t>(member.size), own = static_cast<size_t>(member.rank);
  const auto whole = sample(member.rank, ranks * count);
  std::byte* const output = member.own(0) + 3 + (is_one_place ? 0 : 17 * own);
  const auto expect = [&](const char* what, const std::vector<std::byte>& wanted) {
    member.finish();
    require(!member.team->failure(), "nothing stopped");
    require(std::equal(wanted.begin(), wanted.end(), output), what);
    require(output[-1] == std::byte{0x5a} && output[wanted.size()] == std::byte{0x5a},
            "nothing is written beside the output");
  };
  const auto begin = [&] { std::memset(member.own(0), 0x5a, member.bytes); };
  std::vector<std::byte> wanted;
  const auto append = [&](int from, size_t at) {
    const auto all = sample(from, ranks * count);
    wanted.insert(wanted.end(), all.begin() + static_cast<ptrdiff_t>(at),
                  all.begin() + static_cast<ptrdiff_t>(at + count));
  };

  begin();
  member.launch(member.call(Collective::kAllGather, count, whole.data(), output), 0, copy_method);
  for (int from = 0; from < member.size; ++from) append(from, 0);
  expect("all_gather", wanted);

  begin();
  if (count > 0) std::memcpy(output + own * count, whole.data(), count);
  member.launch(member.call(Collective::kAllGather, count, output + own * count, output), 0,
                copy_method);
  expect("all_gather in place", wanted);

  begin();
  member.launch(member.call(Collective::kAllToAll, count, whole.data(), output), 0, copy_method);
  wanted.clear();
  for (int from = 0; from < member.size; ++from) append(from, own * count);
  expect("all_to_all", wanted);

  begin();
  const bool is_root = member.rank == member.size - 1;
  member.launch(
      member.call(Collective::kBroadcast, count, is_root ? whole.data() : nullptr, output), 0,
      copy_method);
  wanted.clear();
  append(member.size - 1, 0);
  expect("broadcast", wanted);
}

TEST_F(RegionsTest, PeersWriteEachOthersOutputs) {
  EXPECT_EQ(on_processes(3,
                         [](int rank, const AllGatherStrings& exchange) {
                           Member member(rank, 3, exchange);
                           for (const size_t count : {size_t{0}, size_t{1}, size_t{100},
                                                      kernels::kWindowTile + 1, size_t{1000003}})
                             for (const auto copy_method :
                                  {CopyMethod::kAutomatic, CopyMethod::kCopyEngine})
                               check_every_collective(member, count, copy_method);
                           exchange("");
                         }),
            0);
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    check_every_collective(member, 1000003, CopyMethod::kAutomatic);
    check_every_collective(member, 1000003, CopyMethod::kCopyEngine);
    exchange("");
  });
}

// A runtime that counts what each thread has made and not given back.
struct Held {
  int streams = 0, events = 0;
  int left = 100;  // so many more it makes
};
thread_local Held held;
std::shared_ptr<const gpu::Runtime> counting_runtime() {
  constexpr int kOutOfMemory = 2;
  auto table = cpu.table();
  table.StreamCreateWithPriority = [](gpu::NativeStream* stream, unsigned flags, int priority) {
    if (held.left-- <= 0) return kOutOfMemory;
    ++held.streams;
    return cpu.table().StreamCreateWithPriority(stream, flags, priority);
  };
  table.EventCreateWithFlags = [](gpu::NativeEvent* event, unsigned flags) {
    if (held.left-- <= 0) return kOutOfMemory;
    ++held.events;
    return cpu.table().EventCreateWithFlags(event, flags);
  };
  table.StreamDestroy = [](gpu::NativeStream stream) {
    --held.streams;
    return cpu.table().StreamDestroy(stream);
  };
  table.EventDestroy = [](gpu::NativeEvent event) {
    --held.events;
    return cpu.table().EventDestroy(event);
  };
  return std::make_shared<const gpu::Runtime>("cpu", "", table);
}

TEST_F(RegionsTest, LongCopiesOfARanksOwnRunOnOneStreamOfTheTeam) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange, kLongBytes, counting_runtime());
    const auto expect_held = [](int streams, int events) {
      EXPECT_EQ(held.streams, streams);
      EXPECT_EQ(held.events, events);
    };
    check_every_collective(member, kernels::kForkMinBytes, CopyMethod::kAutomatic);
    check_every_collective(member, kernels::kForkMinBytes - 1, CopyMethod::kCopyEngine);
    expect_held(0, 0);
    for (int i = 0; i < 3; ++i) {
      check_every_collective(member, kernels::kForkMinBytes, CopyMethod::kCopyEngine);
      expect_held(1, 2);
    }
    check_every_collective(member, 1000, CopyMethod::kCopyEngine);
    exchange("");
    member.windows.clear();
    member.team.reset();
    expect_held(0, 0);
  });
}

TEST_F(RegionsTest, WithoutAStreamForItALongCopyIsOnTheCallsStream) {
  for (const int left : {0, 1, 2})  // a stream, and two events
    on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
      Member member(rank, 2, exchange, kLongBytes, counting_runtime());
      held.left = rank == 0 ? left : 3;
      check_every_collective(member, kernels::kForkMinBytes, CopyMethod::kCopyEngine);
      EXPECT_EQ(held.streams, rank == 0 ? 0 : 1);
      EXPECT_EQ(held.events, rank == 0 ? 0 : 2);
      held.left = 3;
      check_every_collective(member, kernels::kForkMinBytes, CopyMethod::kCopyEngine);
      exchange("");
    });
}

TEST_F(RegionsTest, ALongCopyOfARanksOwnIsInTheCaptureOfItsCallAlone) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange, kLongBytes);
    constexpr size_t kCount = kernels::kForkMinBytes;
    const auto mine = sample(rank, kCount);
    const auto launch = [&](int window, gpu::NativeStream stream) {
      const auto call =
          member.call(Collective::kAllGather, kCount, mine.data(), member.own(window));
      const auto& there = *member.windows[static_cast<size_t>(window)];
      member.team->launch(there.make_collective_call(call, CopyMethod::kCopyEngine), stream);
    };
    const auto check = [&](int window, const char* what) {
      for (int from = 0; from < 2; ++from)
        require(
            std::ranges::equal(sample(from, kCount),
                               std::span(member.own(window) + from * ptrdiff_t{kCount}, kCount)),
            what);
      std::memset(member.own(window), 0x5a, kLongBytes);
      exchange("");
    };

    gpu::cpu_begin_capture(member.stream);
    for (const int window : {0, 1}) launch(window, member.stream);
    const auto other = cpu.create_stream(false);
    launch(0, other);
    cpu.synchronize(other);
    check(0, "a call beside the capture");
    const auto graph = gpu::cpu_end_capture(member.stream);
    for (int replay = 0; replay < 3; ++replay) {
      gpu::cpu_launch_graph(graph, member.stream);
      member.finish();
      for (const int window : {0, 1}) check(window, "a replay");
    }
    launch(1, other);
    cpu.synchronize(other);
    check(1, "a call after the capture");
    cpu.destroy_stream(other);
  });
}

TEST_F(RegionsTest, ManyInARowAndInGraphsKeepTheirOrder) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    constexpr size_t kCount = 30000;
    uint64_t round = 0;
    std::vector<uint64_t> mine(kCount);
    gpu::cpu_begin_capture(member.stream);
    // What this one gives the next one takes: from the first window to the second.
    auto call =
        member.call(Collective::kBroadcast, kCount * sizeof(uint64_t), mine.data(), member.own(0));
    member.launch(call, 0);
    call = member.call(Collective::kAllGather, kCount * sizeof(uint64_t) / 3,
                       member.own(0) + static_cast<size_t>(rank) * kCount * sizeof(uint64_t) / 3,
                       member.own(1));
    member.launch(call, 1);
    const auto graph = gpu::cpu_end_capture(member.stream);
    for (; round < 30; ++round) {
      for (size_t i = 0; i < kCount; ++i) mine[i] = round * kCount + i;
      gpu::cpu_launch_graph(graph, member.stream);
      member.finish();
      std::vector<uint64_t> wanted(kCount), got(kCount);
      for (size_t i = 0; i < kCount; ++i) wanted[i] = round * kCount + i;
      std::memcpy(got.data(), member.own(1), kCount * sizeof(uint64_t));
      ASSERT_EQ(got, wanted) << "replay " << round;
    }
    exchange("");
  });
}

// All reductions of whole numbers.
TEST_F(RegionsTest, CopyEnginesTakeOnWhatIsReduced) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    constexpr size_t kCount = 30001;
    auto* const numbers = reinterpret_cast<int32_t*>(member.own(0)) + 5;
    std::vector<int32_t> output(kCount);
    for (const auto collective :
         {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
      const bool has_parts = collective == Collective::kReduceScatter;
      const size_t all = has_parts ? 3 * kCount : kCount;
      for (size_t i = 0; i < all; ++i) numbers[i] = static_cast<int32_t>(i) * (rank + 1);
      auto* const into = reinterpret_cast<std::byte*>(has_parts ? output.data() : numbers);
      auto call = member.call(collective, kCount, numbers, into);
      call.dtype = Dtype::kInt32;
      call.op = ReduceOpCode::kSum;
      const bool is_root = rank == call.root;
      if (collective == Collective::kReduce && !is_root) call.output = nullptr;
      member.launch(call, 0, CopyMethod::kCopyEngine);
      member.finish();
      require(!member.team->failure(), "nothing stopped");
      const bool has_result = collective != Collective::kReduce || is_root;
      for (size_t i = 0; i < kCount && has_result; ++i) {
        const size_t at = has_parts ? static_cast<size_t>(rank) * kCount + i : i;
        ASSERT_EQ(has_parts ? output[i] : numbers[i], static_cast<int32_t>(at) * 6) << i;
      }
      for (size_t i = 0; i < all && (has_parts || !has_result); ++i)
        ASSERT_EQ(numbers[i], static_cast<int32_t>(i) * (rank + 1)) << "the input stays";
      exchange("");
    }
  });
}

TEST_F(RegionsTest, OtherSizesOrRegionsStopBothRanks) {
  for (const bool other_region : {false, true})
    on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
      Member member(rank, 2, exchange);
      const auto data = sample(rank, 1000);
      const int window = other_region && rank == 1 ? 1 : 0;
      const size_t count = !other_region && rank == 1 ? 999 : 1000;
      auto call = member.call(Collective::kAllGather, count, data.data(), member.own(window));
      call.timeout_ns = 10'000'000'000;
      member.launch(call, window);
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, kernels::kWindowMismatch);
      EXPECT_EQ(member.team->failure()->collective, Collective::kAllGather);
      EXPECT_EQ(member.team->failure()->waited_for, 1 - rank);
      exchange("");
    });
}

TEST_F(RegionsTest, CopiesAreForOutputsAtOnePlaceOfAllRanksThatAskForThem) {
  for (const bool other_place : {true, false})
    on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
      Member member(rank, 2, exchange);
      const auto data = sample(rank, 1000);
      const bool is_other = rank == 1;
      auto call = member.call(Collective::kAllGather, 1000, data.data(),
                              member.own(0) + (other_place && is_other ? 1 : 0));
      call.timeout_ns = 10'000'000'000;
      member.launch(call, 0,
                    !other_place && is_other ? CopyMethod::kAutomatic : CopyMethod::kCopyEngine);
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason,
                other_place ? kernels::kWindowMismatch : StopReason::kCallMismatch);
      EXPECT_EQ(member.team->failure()->waited_for, 1 - rank);
      exchange("");
    });
}

TEST_F(RegionsTest, ALimitEndsALaunchThatOneRankLacks) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 0) {
      const auto data = sample(rank, 1000);
      auto call = member.call(Collective::kAllToAll, 500, data.data(), member.own(0));
      call.timeout_ns = 20'000'000;
      member.launch(call);
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kTimeout);
      EXPECT_EQ(member.team->failure()->waited_for, 1);
    }
    exchange("");
  });
}

TEST_F(RegionsTest, AbortEndsAWait) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 0) {
      member.launch(member.call(Collective::kBroadcast, 500, nullptr, member.own(0)));
      member.team->abort();
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kAborted);
    }
    exchange("");
  });
}

TEST_F(RegionsTest, AWindowSaysWhatIsInIt) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    const auto& window = *member.windows[0];
    EXPECT_TRUE(window.contains(member.own(0), kBytes));
    EXPECT_TRUE(window.contains(member.own(0) + kBytes, 0));
    EXPECT_TRUE(window.contains(member.own(0) + 5, 10));
    EXPECT_FALSE(window.contains(member.own(0) + 5, kBytes));
    EXPECT_FALSE(window.contains(member.own(0) - 1, 1));
    EXPECT_FALSE(window.contains(member.own(1), 1));
    EXPECT_NE(member.windows[0]->make_collective_call({}).window_id,
              member.windows[1]->make_collective_call({}).window_id);
    EXPECT_TRUE(member.team->can_launch_on_window(
        member.call(Collective::kAllGather, 5, nullptr, member.own(0))));
    EXPECT_TRUE(member.team->can_launch_on_window(
        member.call(Collective::kAllReduce, 5, member.own(0), member.own(0))));
    auto other = member.call(Collective::kGather, 5, nullptr, member.own(0));
    EXPECT_FALSE(member.team->can_launch_on_window(other));
    EXPECT_THROW(member.team->launch(window.make_collective_call(other), member.stream), CommError);
    exchange("");
  });
}

}  // namespace
}  // namespace torch::comms::ctran
