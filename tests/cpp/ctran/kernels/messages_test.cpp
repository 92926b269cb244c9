#include "ctran/kernels/messages/messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "ctran/kernels/protocol/vector.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"
#include "ctran/kernels/windows/window_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kKB = 1024, kMB = 1024 * kKB;
constexpr size_t kSizes[] = {
    0,         1,   959,      960,     961,         16 * kKB,  64 * kKB, 64 * kKB + 1,
    256 * kKB, kMB, kMB + 13, 4 * kMB, 4 * kMB + 1, 100 * kMB, 1 << 30,  SIZE_MAX / 2};

TEST(MessageLayoutTest, RingsComeRound) {
  const auto far = (uint64_t{1} << 40) + 1;
  EXPECT_EQ(tile_offset(2, 0, 1, 3, far), tile_offset(2, 0, 1, 3, far + kTileRing));
  EXPECT_NE(tile_offset(2, 0, 1, 3, far), tile_offset(2, 0, 1, 3, far + 1));
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const WorkspaceLayout layout(ranks);
    for (const bool is_first_alone : {false, true}) {
      const auto rings = layout.rings(ranks, is_first_alone);
      const uint32_t length = rings.slots(rings.known_ring);
      const auto offset = [&](uint64_t number) {
        return chunk_offset(rings, length, 0, 1, 15, number);
      };
      EXPECT_EQ(length,
                static_cast<uint32_t>(is_first_alone ? first_chunks(ranks) : chunk_ring(ranks)));
      std::set<size_t> slots;
      for (uint64_t number = far; number < far + length; ++number) {
        EXPECT_EQ(offset(number), offset(number + length));
        slots.insert(offset(number));
        EXPECT_LE(offset(number) + kChunk,
                  is_first_alone ? layout.window_sync_words : layout.bytes);
      }
      EXPECT_EQ(slots.size(), length);
    }
  }
}

// A sender and a receiver that move as they like: no slot is written before it has been read.
TEST(MessageLayoutTest, CountersKeepASlotUntilItIsTaken) {
  std::mt19937_64 random(5);
  for (const uint64_t first : {uint64_t{0}, ~uint64_t{0} - 50}) {
    constexpr uint64_t kRing = 4;
    uint64_t sent = first, taken = first, reported = first;
    std::map<uint64_t, uint64_t> slots;
    while (taken != first + 200) {
      if (random() % 2 == 0 && sent != first + 200 && has_space(sent, reported, kRing)) {
        ASSERT_TRUE(slots.emplace(sent % kRing, sent).second);
        ++sent;
      }
      if (random() % 3 == 0 && has_reached(sent, taken + 1)) {
        const auto slot = slots.find(taken % kRing);
        ASSERT_EQ(slot->second, taken);
        slots.erase(slot);
        ++taken;
      }
      if (random() % 2 == 0) reported = taken;
    }
    EXPECT_FALSE(has_space(first + kRing, first, kRing));
  }
}

// The same, where each message goes through the first part of a ring or through all of it.
TEST(MessageLayoutTest, RingsOfBothLengthsKeepASlotUntilItIsTaken) {
  const auto rings = WorkspaceLayout(4).rings(4, false);
  ASSERT_EQ(rings.known_ring, kWholeRing);
  struct Sent {
    uint64_t ring, before, end;
    bool changes;
  };
  std::mt19937_64 random(7);
  std::vector<Sent> messages;
  for (uint64_t end = 0, ring = 0; messages.size() < 500;) {
    const uint64_t next = random() % 2 == 0 ? 0 : kWholeRing, count = 1 + random() % 20;
    messages.push_back({next, end, end + count, next != ring});
    ring = next;
    end += count;
  }
  uint64_t counter = 0, taken = 0, reported = 0;
  std::map<size_t, uint64_t> slots;
  const auto slot_of = [&](uint64_t ring, uint64_t number) {
    return chunk_offset(rings, rings.slots(ring), 0, 1, 3, number);
  };
  auto sending = messages.begin(), receiving = messages.begin();
  for (size_t steps = 0; receiving != messages.end(); ++steps) {
    ASSERT_LT(steps, 1'000'000u) << "neither side goes on";
    if (random() % 2 == 0 && sending != messages.end()) {
      const uint64_t sent = number_of(counter);
      const auto& [ring, before, end, changes] = *sending;
      if (has_reached(sent, end_of_space(before, reported, rings.slots(ring), changes))) continue;
      ASSERT_TRUE(slots.emplace(slot_of(ring, sent), sent).second) << sent;
      counter = ring | (sent + 1);
      if (sent + 1 == end) ++sending;
    } else if (random() % 2 == 0) {
      if (taken == receiving->before) reported = taken;
      if (taken == number_of(counter)) continue;
      const auto slot = slots.find(slot_of(ring_in(counter), taken));
      ASSERT_TRUE(slot != slots.end() && slot->second == taken) << taken;
      slots.erase(slot);
      // Of a message's last one it tells when it is at the next.
      if (++taken == receiving->end)
        ++receiving;
      else
        reported = taken;
    }
  }
}

TEST(MessageLayoutTest, HeadsOfTheSamePlaceHaveOtherNumbers) {
  EXPECT_EQ(header_number(0), 1u);  // nothing is there yet
  EXPECT_NE(header_number(uint64_t{1} << 32), header_number((uint64_t{1} << 32) + kHeaderRing));
}

TEST(MessageLayoutTest, AHeadHasASizeAndWhetherItAsks) {
  for (const size_t bytes : kSizes)
    for (const bool requests_zero_copy : {false, true}) {
      EXPECT_EQ(header_value(bytes, requests_zero_copy) & ~kZeroCopyRequest, bytes);
      EXPECT_EQ((header_value(bytes, requests_zero_copy) & kZeroCopyRequest) != 0,
                requests_zero_copy);
    }
}

// What is written straight to its place is cut into chunks behind the bytes before the place's
// alignment, and counted as if there were none of those: so it never has more chunks than that.
TEST(MannerTest, GivesEveryChannelOfChunksSomething) {
  for (const size_t bytes : kSizes) {
    const KernelMessageProtocol protocol = protocol_of(bytes);
    if (protocol.is_ll128) continue;
    for (const int channel : {0, protocol.channels - 1}) {
      EXPECT_GT(pieces_of(quotient_up(bytes, protocol.piece), protocol.channels, channel), 0u)
          << bytes;
      for (size_t head = 0; head < 16; ++head)
        EXPECT_LE(pieces_of(quotient_up(bytes - head, protocol.piece), protocol.channels, channel),
                  pieces_of(quotient_up(bytes, protocol.piece), protocol.channels, channel));
    }
  }
}

TEST(MannerTest, SmallMessagesHaveNoPlaceAndDoNotAsk) {
  char memory = 0;
  for (const size_t bytes : kSizes) {
    const MessageTransfer msg = transfer_of(&memory, bytes, &memory, true);
    EXPECT_EQ(msg.requests_zero_copy, !msg.is_ll128) << bytes;
    EXPECT_EQ(msg.zero_copy_target != nullptr, !msg.is_ll128) << bytes;
    const MessageTransfer usual = transfer_of(&memory, bytes, nullptr, false);
    EXPECT_FALSE(usual.requests_zero_copy);
    EXPECT_EQ(usual.zero_copy_target, nullptr);
  }
}

TEST(MannerTest, FitsItsChannels) {
  for (const size_t bytes : kSizes) {
    const KernelMessageProtocol protocol = protocol_of(bytes);
    EXPECT_LE(protocol.channels, protocol.is_ll128 ? kLineChannels : kChunkChannels) << bytes;
    EXPECT_LE(protocol.piece, protocol.is_ll128 ? kLL128Tile : kChunk) << bytes;
    EXPECT_TRUE(protocol.is_ll128 || protocol.piece % 16 == 0) << bytes;
    EXPECT_EQ(protocol.channels & (protocol.channels - 1), 0) << bytes;
  }
}

TEST(MannerTest, GrowsWithTheMessage) {
  EXPECT_EQ(protocol_of(0).channels, 1);
  EXPECT_TRUE(protocol_of(kLL128MaxBytes).is_ll128);
  EXPECT_FALSE(protocol_of(kLL128MaxBytes + 1).is_ll128);
  for (size_t i = 1; i < std::size(kSizes); ++i)
    if (protocol_of(kSizes[i - 1]).is_ll128 == protocol_of(kSizes[i]).is_ll128) {
      EXPECT_LE(protocol_of(kSizes[i - 1]).channels, protocol_of(kSizes[i]).channels) << kSizes[i];
    }
  EXPECT_EQ(protocol_of(kLL128MaxBytes).channels, kLineChannels);
  EXPECT_EQ(protocol_of(1 << 30).channels, kChunkChannels);
}

TEST(MannerTest, WorkersHaveAllPiecesOnce) {
  for (const uint64_t pieces : {0, 1, 15, 16, 17, 1000})
    for (const int workers : {1, 2, 16, 64}) {
      uint64_t all = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const uint64_t own = pieces_of(pieces, workers, worker);
        uint64_t counted = 0;
        for (auto piece = static_cast<uint64_t>(worker); piece < pieces;
             piece += static_cast<uint64_t>(workers))
          ++counted;
        EXPECT_EQ(own, counted);
        all += own;
      }
      EXPECT_EQ(all, pieces);
    }
}

struct Given {
  std::vector<KernelMessage> messages;
  TeamDescriptor team{};

  explicit Given(int ranks) {
    team.rank = 1;
    team.size = ranks;
  }
  Given& add(int peer, bool receives, size_t bytes) {
    messages.push_back({this, bytes, peer, receives ? 1 : 0});
    return *this;
  }
  MessageExchange exchange(int blocks = 0) const {
    return {messages.data(), static_cast<int32_t>(messages.size()), blocks, 7};
  }
  ExchangeParams params(int blocks = 0, int most_blocks = 128) const {
    return params_of(team, exchange(blocks), most_blocks);
  }
};

TEST(ExchangeTest, RoutesKeepTheOrderOfTheirMessages) {
  Given given(4);
  given.add(3, true, 10).add(0, false, 20).add(3, true, 30).add(3, false, 40).add(0, false, 50);
  const auto p = given.params();
  EXPECT_EQ(p.collective, Collective::kExchange);
  EXPECT_EQ(p.timeout_ns, 7u);
  ASSERT_EQ(p.routes_count, 3);
  std::vector<std::vector<size_t>> all;
  for (int r = 0; r < p.routes_count; ++r) {
    auto& sizes = all.emplace_back();
    for (int i = p.routes[r].first; i < p.routes[r].end; ++i) sizes.push_back(p.transfers[i].bytes);
  }
  EXPECT_EQ(all, (std::vector<std::vector<size_t>>{{20, 50}, {40}, {10, 30}}));
  EXPECT_EQ(p.routes[0].peer, 0);
  EXPECT_TRUE(p.routes[2].is_receive);
  EXPECT_EQ(p.routes[2].peer, 3);
}

TEST(ExchangeTest, BlocksAreOfOneRouteEach) {
  Given given(3);
  given.add(0, false, 100).add(2, true, 64 * kMB).add(0, true, kMB).add(0, true, 1);
  for (const int blocks : {0, 1, 3}) {
    const auto p = given.params(blocks);
    int next = 0;
    for (int r = 0; r < p.routes_count; ++r) {
      EXPECT_EQ(p.routes[r].first_block, next);
      EXPECT_GE(p.routes[r].blocks, 1);
      EXPECT_LE(p.routes[r].blocks, blocks == 0 ? kMostChannels : blocks);
      next += p.routes[r].blocks;
    }
    EXPECT_EQ(p.blocks, next);
  }
  EXPECT_EQ(given.params().routes[0].blocks, 1);
  EXPECT_EQ(given.params().routes[1].blocks, protocol_of(kMB).channels);
  EXPECT_EQ(given.params().routes[2].blocks, kChunkChannels);
}

TEST(ExchangeTest, BlocksOfAllPeersAreOnTheGpuAtOnce) {
  for (const int most : {14, 104, 128, 144})
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
      Given given(ranks);
      for (int peer = 0; peer < ranks; ++peer)
        if (peer != 1) given.add(peer, true, 64 * kMB).add(peer, false, 64 * kMB);
      const auto p = given.params(0, most);
      EXPECT_LE(p.blocks, std::min(most, kMostExchangeBlocks));
      for (int r = 0; r < p.routes_count; ++r) EXPECT_EQ(kChunkChannels % p.routes[r].blocks, 0);
    }
}

TEST(ExchangeTest, LinesOfWholeVectorsAreLean) {
  alignas(16) static char memory[64];
  const auto kind_of = [](std::vector<std::pair<char*, size_t>> all,
                          bool requests_zero_copy = false) {
    Given given(2);
    for (const auto& [data, bytes] : all) given.messages.push_back({data, bytes, 0, 0});
    given.messages.back().requests_zero_copy = requests_zero_copy;
    return given.params().kind;
  };
  EXPECT_EQ(kind_of({{memory, 16}, {memory, kMB}, {memory, 0}}), MessageKind::kLean);
  EXPECT_EQ(kind_of({{memory, 16}, {memory + 8, 16}}), MessageKind::kDefault);
  EXPECT_EQ(kind_of({{memory, 17}}), MessageKind::kDefault);
  EXPECT_EQ(kind_of({{memory, 2 * kLL128MaxBytes}, {memory, 16}}), MessageKind::kDefault);
  EXPECT_EQ(kind_of({{memory, 2 * kLL128MaxBytes}}, true), MessageKind::kZeroCopy);
  EXPECT_EQ(kind_of({{memory, 16}}, true), MessageKind::kLean);  // which nobody asks for
}

TEST(ExchangeTest, LeanLaunchesHaveAWarpForEachTileOfAChannel) {
  alignas(16) static char memory[16];
  const auto copy_warps = [](size_t bytes) {
    Given given(2);
    given.messages.push_back({memory, bytes, 0, 0});
    return given.params().copy_warps;
  };
  EXPECT_EQ(copy_warps(0), 1);
  EXPECT_EQ(copy_warps(16), 1);
  EXPECT_EQ(copy_warps(4 * kLL128Tile), 4);
  EXPECT_EQ(copy_warps(64 * kKB), 5);  // 69 tiles of 16 channels
  EXPECT_EQ(copy_warps(kMB), kChannelWarps);
  EXPECT_EQ(copy_warps(kMB + 16), kChannelWarps);
  EXPECT_EQ(copy_warps(17), kChannelWarps);  // not lean
}

TEST(ExchangeTest, RoutesHaveTheChannelsOfTheirLargestMessage) {
  Given given(3);
  given.add(0, false, 100).add(2, true, 64 * kMB).add(0, true, 100).add(0, true, 16 * kKB);
  for (const int blocks : {0, 2}) {
    const auto p = given.params(blocks);
    EXPECT_EQ(p.routes[0].channels, 1);
    EXPECT_EQ(p.routes[1].channels, protocol_of(16 * kKB).channels);
    EXPECT_EQ(p.routes[2].channels, kChunkChannels);
  }
}

TEST(ExchangeTest, IsSound) {
  Given given(2);
  EXPECT_FALSE(is_valid(given.team, given.exchange()));
  given.add(0, false, 1);
  EXPECT_TRUE(is_valid(given.team, given.exchange()));
  EXPECT_FALSE(is_valid(given.team, given.exchange(-1)));
  for (const KernelMessage& wrong :
       {KernelMessage{&given, 1, 1, 0}, KernelMessage{&given, 1, 2, 0},
        KernelMessage{&given, 1, -1, 0}, KernelMessage{nullptr, 1, 0, 0}}) {
    Given one(2);
    one.messages.push_back(wrong);
    EXPECT_FALSE(is_valid(one.team, one.exchange()));
  }
  given.messages.assign(kMaxMessages, {nullptr, 0, 0, 1});
  EXPECT_TRUE(is_valid(given.team, given.exchange()));
  given.add(0, false, 1);
  EXPECT_FALSE(is_valid(given.team, given.exchange()));
}

TEST(VectorTest, IsShiftedByBytes) {
  uint8_t bytes[32];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 200);
  Vector16 low, high;
  std::memcpy(&low, bytes, 16);
  std::memcpy(&high, bytes + 16, 16);
  for (uint32_t by = 0; by < 16; ++by) {
    const Vector16 got = shifted(low, high, by);
    EXPECT_EQ(std::memcmp(&got, bytes + by, 16), 0) << by;
  }
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
