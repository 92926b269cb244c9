#include "ctran/team/device_window.hpp"

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include <cstring>
#include <vector>

#include "ctran/kernels/messages/rma.hpp"
#include "ctran/team/member.hpp"

// Windows of a team, over the stand-in's kernels.
namespace torch::comms::ctran {
namespace {

using kernels::KernelRmaOperation;
using kernels::KernelSlotComparison;
using kernels::StopReason;
using test::cpu;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;

class DeviceWindowTest : public test::KernelsTest {};

constexpr size_t kPage = 4096;
constexpr uint64_t kSlots = 5;

// A rank with a window of pages, one more than its rank.
struct Member : test::TeamMember {
  Member(int rank, int size, const AllGatherStrings& exchange)
      : TeamMember(rank, size, exchange),
        memory(gpu::ShareableMemory::create(gpu::Driver::of(cpu), cpu, 0,
                                            kPage * static_cast<size_t>(rank + 1))) {
    auto result = DeviceWindow::create(
        team, {own(), memory.size_bytes(), kSlots + rank, "note " + std::to_string(rank)}, "",
        exchange);
    require(result.window != nullptr, result.unavailable_reason.c_str());
    window = std::move(result.window);
  }
  std::byte* own() const { return static_cast<std::byte*>(memory.at()); }
  int next() const { return (rank + 1) % size; }
  int before() const { return (rank + size - 1) % size; }
  void finish() const { cpu.synchronize(stream); }

  const gpu::ShareableMemory memory;
  std::unique_ptr<DeviceWindow> window;
};

// What `from` puts to `to` in a round.
std::vector<std::byte> sample(int from, int to, int round) {
  std::vector<std::byte> data(1000);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(from * 64 + to * 16 + round));
  return data;
}

void put_around(const Member& member, const AllGatherStrings& exchange) {
  require(member.window->rank_memory(1).size_bytes == 2 * kPage, "sizes are told");
  require(member.window->rank_memory(1).slots == kSlots + 1, "slots are told");
  require(member.window->rank_memory(1).metadata == "note 1", "notes are told");
  for (int round = 0; round < 20; ++round) {
    const auto data = sample(member.rank, member.next(), round);
    const auto wanted = sample(member.before(), member.rank, round);
    const size_t offset = static_cast<size_t>(round) * 100;
    member.window->put(member.next(), offset, data.data(), data.size(), member.stream);
    member.window->signal(member.next(), member.stream);
    member.window->wait_signal(member.before(), 0, member.stream);
    member.finish();
    require(std::memcmp(member.own() + offset, wanted.data(), wanted.size()) == 0,
            "what was put is there with its signal");
    exchange("");  // before it is written again
  }
  require(!member.team->failure(), "nothing stopped");
}

TEST_F(DeviceWindowTest, WhatWasPutIsThereWithItsSignal) {
  on_threads(4, [](int rank, const AllGatherStrings& exchange) {
    put_around(Member(rank, 4, exchange), exchange);
  });
  EXPECT_EQ(on_processes(3,
                         [](int rank, const AllGatherStrings& exchange) {
                           put_around(Member(rank, 3, exchange), exchange);
                         }),
            0);
}

TEST_F(DeviceWindowTest, SignalsAreCountedAndEachIsConsumedOnce) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    if (rank == 0)
      for (int i = 0; i < 3; ++i) member.window->signal(1, member.stream);
    member.finish();
    exchange("");
    if (rank == 1) {
      for (int i = 0; i < 3; ++i) member.window->wait_signal(0, 0, member.stream);
      member.finish();
      EXPECT_FALSE(member.team->failure());
      member.window->wait_signal(0, 20'000'000, member.stream);
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kTimeout);
      EXPECT_EQ(member.team->failure()->collective, kernels::Collective::kWaitSignal);
      EXPECT_EQ(member.team->failure()->waited_for, 0);
    }
    exchange("");
  });
}

// As of a replay and a call.
TEST_F(DeviceWindowTest, WaitsOnTwoStreamsHaveASignalEach) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    if (rank == 1) {
      auto* const other = cpu.create_stream(false);
      for (auto* const stream : {member.stream, other})
        member.window->wait_signal(0, 200'000'000, stream);
      exchange("");
      cpu.synchronize(other);
      member.finish();
      cpu.destroy_stream(other);
      ASSERT_TRUE(member.team->failure()) << "there was one signal for two";
      EXPECT_EQ(member.team->failure()->reason, StopReason::kTimeout);
    } else {
      exchange("");
      member.window->signal(1, member.stream);
      member.finish();
    }
    exchange("");
  });
}

TEST_F(DeviceWindowTest, ARankSignalsItself) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    member.window->put(rank, 8, "self", 5, member.stream);
    member.window->signal(rank, member.stream);
    member.window->wait_signal(rank, 0, member.stream);
    member.finish();
    EXPECT_STREQ(reinterpret_cast<const char*>(member.own() + 8), "self");
    exchange("");
  });
}

TEST_F(DeviceWindowTest, SlotsHoldTheUsersValues) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    const auto wait = [&](uint64_t slot, uint64_t value, KernelSlotComparison comparison) {
      member.window->wait_slot(slot, value, comparison, 0, member.stream);
    };
    wait(0, 0, KernelSlotComparison::kEqual);  // as they are at first
    if (rank == 0) {
      member.window->store(1, 4, 40, member.stream);
      member.window->store(1, 3, 7, member.stream);
    } else {
      wait(3, 7, KernelSlotComparison::kEqual);
      wait(4, 39, KernelSlotComparison::kAtLeast);
      wait(4, 40, KernelSlotComparison::kAtMost);
      wait(4, 40, KernelSlotComparison::kEqual);
    }
    member.finish();
    EXPECT_FALSE(member.team->failure());
    exchange("");
  });
}

TEST_F(DeviceWindowTest, RepeatsWhatWasCaptured) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    uint64_t value = 0;
    gpu::cpu_begin_capture(member.stream);
    member.window->put(member.next(), 0, &value, sizeof value, member.stream);
    member.window->signal(member.next(), member.stream);
    member.window->wait_signal(member.before(), 0, member.stream);
    const auto graph = gpu::cpu_end_capture(member.stream);
    for (uint64_t replay = 1; replay <= 50; ++replay) {
      value = 100 * replay + static_cast<uint64_t>(rank);
      gpu::cpu_launch_graph(graph, member.stream);
      member.finish();
      uint64_t got = 0;
      std::memcpy(&got, member.own(), sizeof got);
      EXPECT_EQ(got, 100 * replay + static_cast<uint64_t>(member.before()));
      exchange("");
    }
  });
}

TEST_F(DeviceWindowTest, AbortEndsAWait) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    if (rank == 0) {
      member.window->wait_signal(1, 0, member.stream);
      member.team->abort();
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kAborted);
    }
    exchange("");
  });
}

TEST_F(DeviceWindowTest, MemoryThatCannotBeMappedIsRefusedOnAllRanks) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    test::TeamMember member(rank, 2, exchange);
    std::vector<std::byte> plain(100);
    const auto result = DeviceWindow::create(
        member.team, {rank == 1 ? plain.data() : nullptr, rank == 1 ? plain.size() : 0, 0, ""}, "",
        exchange);
    EXPECT_EQ(result.window, nullptr);
    EXPECT_EQ(
        result.unavailable_reason.find("rank 1: its memory cannot be mapped by other processes"),
        0u)
        << result.unavailable_reason;
    const auto declined =
        DeviceWindow::create(member.team, {}, rank == 0 ? "no wish for it" : "", exchange);
    EXPECT_EQ(declined.unavailable_reason, "rank 0: no wish for it");
  });
}

TEST_F(DeviceWindowTest, AStepThatMakesNoSenseIsNotLaunched) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    KernelRmaOperation step{};
    EXPECT_THROW(member.team->run_rma(step, member.stream), CommError);  // without words
    exchange("");
  });
}

TEST(OneSidedStep, IsMetAsItsComparisonSays) {
  KernelRmaOperation step{};
  step.kind = KernelRmaOperation::Kind::kWaitSlot;
  const auto satisfied = [&](KernelSlotComparison comparison, uint64_t seen) {
    step.comparison = comparison;
    return kernels::is_satisfied(step, seen, 5);
  };
  EXPECT_TRUE(satisfied(KernelSlotComparison::kEqual, 5) &&
              !satisfied(KernelSlotComparison::kEqual, 6));
  EXPECT_TRUE(satisfied(KernelSlotComparison::kAtLeast, 6) &&
              !satisfied(KernelSlotComparison::kAtLeast, 4));
  EXPECT_TRUE(satisfied(KernelSlotComparison::kAtMost, 4) &&
              !satisfied(KernelSlotComparison::kAtMost, 6));
  step.kind = KernelRmaOperation::Kind::kWaitSignal;
  EXPECT_TRUE(kernels::is_satisfied(step, 2, ~uint64_t{0})) << "counts go round";
}

}  // namespace
}  // namespace torch::comms::ctran
