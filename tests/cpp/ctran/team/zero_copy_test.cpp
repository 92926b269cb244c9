#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ctran/kernels/messages/messages.hpp"
#include "ctran/team/device_window.hpp"
#include "ctran/team/member.hpp"

// Messages that their senders write straight to where they are wanted, over the stand-in's kernels.
namespace torch::comms::ctran {
namespace {

using kernels::KernelMessage;
using kernels::StopReason;
using test::cpu;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;

class StraightTest : public test::KernelsTest {};

constexpr size_t kLong = kernels::kLL128MaxBytes + 500'003;
constexpr size_t kHalf = 16 * kernels::kLL128MaxBytes;

// How many messages this process has written straight to their places.
int64_t zero_copy_count() {
  void* const library = ::dlopen(std::getenv(test::kVariable), RTLD_NOW);
  const auto count =
      reinterpret_cast<int64_t (*)()>(::dlsym(library, "torchcomms_standin_kernels_straight"));
  return count();
}

std::byte sample(int from, size_t serial, size_t i) {
  return static_cast<std::byte>((i * 7 + i / 1021 + serial * 31) % 251 + static_cast<size_t>(from));
}

// A rank with a window, of which one half is sent and the other received.
struct Member : test::TeamMember {
  Member(int rank, int size, const AllGatherStrings& exchange)
      : TeamMember(rank, size, exchange),
        memory(gpu::ShareableMemory::create(gpu::Driver::of(cpu), cpu, 0, 2 * kHalf)) {
    auto result = DeviceWindow::create(team, {at(0), 2 * kHalf, 0, ""}, "", exchange);
    require(result.window != nullptr, result.unavailable_reason.c_str());
    window = std::move(result.window);
  }
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(memory.at()) + offset; }
  void clear() {
    messages.clear();
    end[0] = 0, end[1] = kHalf;
    wanted.assign(kHalf, std::byte{0x5a});
    std::memset(at(kHalf), 0x5a, kHalf);
  }
  void send(int peer, size_t serial, size_t bytes, bool requests_zero_copy) {
    std::byte* const data = at(end[0]);
    for (size_t i = 0; i < bytes; ++i) data[i] = sample(rank, serial, i);
    messages.push_back({data, bytes, peer, 0, nullptr, requests_zero_copy});
    end[0] += bytes + 3;
  }
  void receive(int peer, size_t serial, size_t bytes, bool offers_target) {
    std::byte* const data = at(end[1]);
    for (size_t i = 0; i < bytes; ++i) wanted[end[1] - kHalf + i] = sample(peer, serial, i);
    messages.push_back({data, bytes, peer, 1,
                        offers_target ? window->address_on_peer(peer, data) : nullptr, false});
    end[1] += bytes + 5;
  }
  void launch(uint64_t limit_ns = 0) { team->exchange(messages, limit_ns, stream); }
  void finish() const { cpu.synchronize(stream); }
  void check() const {
    finish();
    require(!team->failure(), "nothing stopped");
    require(std::equal(wanted.begin(), wanted.end(), at(kHalf)),
            "what was sent has come, and nothing beside it");
  }

  gpu::ShareableMemory memory;
  std::unique_ptr<DeviceWindow> window;
  std::vector<KernelMessage> messages;
  size_t end[2] = {0, kHalf};
  std::vector<std::byte> wanted;
};

constexpr size_t kSizes[] = {0, 1000, kernels::kLL128MaxBytes, kernels::kLL128MaxBytes + 1, kLong};

// Each of them with every wish of either side, in one launch. How many are written straight.
int64_t exchange_all(Member& member) {
  int64_t zero_copies = 0;
  for (int round = 0; round < 3; ++round) {
    member.clear();
    size_t serial = 0;
    for (int mask = 0; mask < 4; ++mask)
      for (const size_t bytes : kSizes) {
        const bool requests_zero_copy = (mask & 1) != 0, offers_target = (mask & 2) != 0;
        member.send((member.rank + 1) % member.size, serial, bytes, requests_zero_copy);
        member.receive((member.rank + member.size - 1) % member.size, serial, bytes, offers_target);
        zero_copies +=
            requests_zero_copy && offers_target && bytes > kernels::kLL128MaxBytes ? 1 : 0;
        ++serial;
      }
    member.launch();
    member.check();
  }
  return zero_copies;
}

TEST_F(StraightTest, EitherSideMayLikeItOrNot) {
  EXPECT_EQ(on_processes(3,
                         [](int rank, const AllGatherStrings& exchange) {
                           Member member(rank, 3, exchange);
                           const auto before = zero_copy_count();
                           const auto zero_copies = exchange_all(member);
                           require(zero_copy_count() - before == zero_copies,
                                   "as many as both liked");
                           exchange("");
                         }),
            0);
  const auto before = zero_copy_count();
  on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    const auto zero_copies = exchange_all(member);
    exchange("");
    EXPECT_EQ(zero_copy_count() - before, 2 * zero_copies);
    exchange("");
  });
}

TEST_F(StraightTest, ATeamAsksForLongMessagesWhereItIsTold) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    const auto exchanged = [&](size_t bytes, bool sends, bool receives) {
      exchange("");
      const auto before = zero_copy_count();
      exchange("");
      const bool likes = rank == 0 ? sends : receives;
      member.team->enable_zero_copy_send(
          likes
              ? DeviceTeam::PeerAddress([&](int peer, const void* at, size_t size_bytes) -> void* {
                  return member.window->contains(at, size_bytes)
                             ? member.window->address_on_peer(peer, at)
                             : nullptr;
                })
              : DeviceTeam::PeerAddress());
      member.clear();
      if (rank == 0) member.send(1, 0, bytes, false);
      if (rank == 1) member.receive(0, 0, bytes, false);
      member.launch();
      member.check();
      exchange("");
      return zero_copy_count() - before;
    };
    EXPECT_EQ(exchanged(DeviceTeam::kZeroCopyMinBytes, true, true), 1);
    EXPECT_EQ(exchanged(DeviceTeam::kZeroCopyMinBytes - 1, true, true), 0);
    EXPECT_EQ(exchanged(DeviceTeam::kZeroCopyMinBytes, true, false), 0);
    EXPECT_EQ(exchanged(DeviceTeam::kZeroCopyMinBytes, false, true), 0);
    exchange("");
  });
}

TEST_F(StraightTest, OfACaptureAreRepeated) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    member.clear();
    for (const bool likes : {true, false, true}) {
      member.send(1 - rank, 1, kLong, likes);
      member.receive(1 - rank, 1, kLong, true);
    }
    gpu::cpu_begin_capture(member.stream);
    member.launch();
    const auto graph = gpu::cpu_end_capture(member.stream);
    for (int replay = 0; replay < 10; ++replay) gpu::cpu_launch_graph(graph, member.stream);
    member.check();
    exchange("");
  });
}

TEST_F(StraightTest, OfTheWrongSizeStopBothSides) {
  for (const size_t received : {size_t{10}, kLong - 1})
    for (const bool requests_zero_copy : {false, true})
      on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
        Member member(rank, 2, exchange);
        member.clear();
        if (rank == 0) member.send(1, 0, kLong, requests_zero_copy);
        if (rank == 0) member.receive(1, 0, 7, true);  // which never comes
        if (rank == 1) member.receive(0, 0, received, true);
        member.launch();
        member.finish();
        ASSERT_TRUE(member.team->failure());
        EXPECT_EQ(member.team->failure()->reason, StopReason::kSizeMismatch);
        EXPECT_EQ(member.team->failure()->waited_for, 1 - rank);
        exchange("");
      });
}

TEST_F(StraightTest, ASendThatNobodyAnswersEndsAtItsLimit) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    member.clear();
    if (rank == 0) {
      member.send(1, 0, kLong, true);
      member.launch(20'000'000);
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kTimeout);
      EXPECT_EQ(member.team->failure()->waited_for, 1);
    }
    exchange("");
  });
}

// Parts whose sizes the kernel reads, to outputs at another place of the window on each rank.
void exchange_by_counts(Member& member, bool requests_zero_copy) {
  constexpr size_t kElements = 6'000'000;
  const auto part = [](int from, int to) {
    return static_cast<int64_t>(600'000 * (from + to) + 7 * to);
  };
  const auto element = [](int from, int to, int64_t i) {
    return static_cast<int32_t>(i * 9 + from * 3 + to);
  };
  const int rank = member.rank;
  const auto before = zero_copy_count();
  auto* const input = reinterpret_cast<int32_t*>(member.at(0));
  auto* const output = reinterpret_cast<int32_t*>(member.at(kHalf)) + rank;
  std::vector<int64_t> sent, received;
  size_t at = 0;
  for (int peer = 0; peer < member.size; ++peer) {
    sent.push_back(part(rank, peer));
    received.push_back(part(peer, rank));
    for (int64_t i = 0; i < sent.back(); ++i) input[at++] = element(rank, peer, i);
  }
  kernels::AllToAllVDynamic call{
      input, output, kElements, kElements, sizeof(int32_t), sent.data(), received.data(), 0, 0};
  call.requests_zero_copy = requests_zero_copy;
  for (int peer = 0; peer < member.size; ++peer)
    call.zero_copy_targets[peer] = member.window->address_on_peer(peer, output);
  member.team->exchange(call, member.stream);
  member.finish();
  require(!member.team->failure(), "nothing stopped");
  at = 0;
  for (int peer = 0; peer < member.size; ++peer)
    for (int64_t i = 0; i < received[static_cast<size_t>(peer)]; ++i)
      require(output[at++] == element(peer, rank, i), "what was sent has come");
  int64_t long_ones = 0;
  for (int peer = 0; peer < member.size; ++peer)
    if (peer != rank &&
        static_cast<size_t>(sent[static_cast<size_t>(peer)]) * 4 > kernels::kLL128MaxBytes)
      ++long_ones;
  require(zero_copy_count() - before == (requests_zero_copy ? long_ones : 0),
          "the long ones are written straight");
}

TEST_F(StraightTest, PartsByCountsAreWrittenThere) {
  for (const bool requests_zero_copy : {true, false})
    EXPECT_EQ(on_processes(3,
                           [requests_zero_copy](int rank, const AllGatherStrings& exchange) {
                             Member member(rank, 3, exchange);
                             exchange_by_counts(member, requests_zero_copy);
                             exchange("");
                           }),
              0);
}

}  // namespace
}  // namespace torch::comms::ctran
