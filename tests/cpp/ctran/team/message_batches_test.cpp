#include "ctran/team/message_batches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

namespace torch::comms::ctran {
namespace {

using kernels::KernelMessage;
using kernels::kMaxMessages;
using kernels::kMaxRanks;

KernelMessage message_of(int peer, bool receives, size_t bytes) {
  return {nullptr, bytes, peer, receives ? 1 : 0};
}

std::vector<std::span<const KernelMessage>> parts_of(const MessageBatches& rounds) {
  std::vector<std::span<const KernelMessage>> parts;
  size_t begin = 0;
  for (const size_t end : rounds.ends) {
    parts.push_back(std::span(rounds.messages).subspan(begin, end - begin));
    begin = end;
  }
  return parts;
}

TEST(RoundsTest, AShortListIsOneRound) {
  std::vector<KernelMessage> messages;
  for (size_t i = 0; i < messages_per_batch(4); ++i)
    for (int peer = 1; peer < 4; ++peer)
      for (const bool receives : {false, true}) messages.push_back(message_of(peer, receives, i));
  EXPECT_EQ(messages.size(), static_cast<size_t>(kMaxMessages));
  EXPECT_TRUE(fits_one_batch(4, messages));
  EXPECT_EQ(make_batches(4, messages).ends, std::vector<size_t>{messages.size()});
  messages.push_back(message_of(2, false, 0));
  EXPECT_FALSE(fits_one_batch(4, messages));
  EXPECT_EQ(make_batches(4, messages).ends.size(), 2u);
}

TEST(RoundsTest, NothingIsNoRound) {
  EXPECT_TRUE(fits_one_batch(2, {}));
  EXPECT_TRUE(make_batches(2, {}).ends.empty());
}

TEST(RoundsTest, EachRankAndDirectionKeepsItsOrder) {
  std::mt19937_64 random(7);
  std::vector<KernelMessage> messages;
  for (size_t i = 0; i < 2000; ++i)
    messages.push_back(message_of(1 + static_cast<int>(random() % 5), random() % 2 == 0, i));
  const auto rounds = make_batches(6, messages);
  std::map<std::pair<int, int>, std::vector<size_t>> before, after;
  for (const auto& m : messages) before[{m.peer, m.is_receive}].push_back(m.bytes);
  for (const auto& part : parts_of(rounds)) {
    EXPECT_LE(part.size(), static_cast<size_t>(kMaxMessages));
    EXPECT_FALSE(part.empty());
    std::map<std::pair<int, int>, size_t> of_round;
    for (const auto& m : part) {
      after[{m.peer, m.is_receive}].push_back(m.bytes);
      EXPECT_LE((++of_round[{m.peer, m.is_receive}]), messages_per_batch(6));
    }
    EXPECT_TRUE(std::ranges::is_sorted(part, {}, &KernelMessage::bytes));
  }
  EXPECT_EQ(before, after);
}

// Ranks whose launches wait as kernels do, in the worst case: a send is over only when its receive
// is. A launch moves the first message that is left of each rank and direction.
class World {
 public:
  explicit World(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  void launch(size_t rank, std::span<const KernelMessage> messages) {
    ranks_[rank].emplace_back(messages.begin(), messages.end());
  }
  void launch_rounds(size_t rank, std::span<const KernelMessage> messages) {
    const auto rounds = make_batches(static_cast<int>(ranks_.size()), messages);
    for (const auto& part : parts_of(rounds)) launch(rank, part);
  }

  // Whether all of them end, each message with its own other side.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        for (size_t peer = 0; peer < ranks_.size(); ++peer)
          while (move(rank, peer)) moved = true;
      for (auto& launches : ranks_)
        while (!launches.empty() && launches.front().empty()) launches.pop_front();
    }
    return std::ranges::all_of(ranks_, [](const auto& launches) { return launches.empty(); });
  }

 private:
  using Launch = std::vector<KernelMessage>;

  static Launch::iterator first(Launch& launch, size_t peer, bool receives) {
    return std::ranges::find_if(launch, [&](const KernelMessage& m) {
      return m.peer == static_cast<int>(peer) && (m.is_receive != 0) == receives;
    });
  }
  bool move(size_t from, size_t to) {
    if (ranks_[from].empty() || ranks_[to].empty()) return false;
    auto &sends = ranks_[from].front(), &takes = ranks_[to].front();
    const auto sent = first(sends, to, false), taken = first(takes, from, true);
    if (sent == sends.end() || taken == takes.end()) return false;
    EXPECT_EQ(sent->bytes, taken->bytes);
    sends.erase(sent);
    takes.erase(taken);
    return true;
  }

  std::vector<std::deque<Launch>> ranks_;
};

TEST(RoundsTest, RandomMessagesOfAllRanksComeToAnEnd) {
  std::mt19937_64 random(11);
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (int trial = 0; trial < 30; ++trial) {
      const auto n = static_cast<size_t>(ranks);
      // Of each pair and direction, the same in the same order; across them, in any order.
      std::vector<std::vector<KernelMessage>> lists(n);
      std::vector<std::map<int, std::deque<KernelMessage>>> by_route(n);
      size_t serial = 0;
      for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to) {
          if (from == to || random() % 3 == 0) continue;
          for (size_t count = random() % 150; count > 0; --count) {
            by_route[static_cast<size_t>(from)][2 * to].push_back(message_of(to, false, serial));
            by_route[static_cast<size_t>(to)][2 * from + 1].push_back(
                message_of(from, true, serial++));
          }
        }
      for (size_t rank = 0; rank < n; ++rank)
        while (!by_route[rank].empty()) {
          auto route = by_route[rank].begin();
          std::advance(route, static_cast<ptrdiff_t>(random() % by_route[rank].size()));
          if (!route->second.empty()) {
            lists[rank].push_back(route->second.front());
            route->second.pop_front();
          }
          if (route->second.empty()) by_route[rank].erase(route);
        }
      World world(ranks);
      for (size_t rank = 0; rank < n; ++rank) world.launch_rounds(rank, lists[rank]);
      EXPECT_TRUE(world.run()) << ranks << " ranks, trial " << trial;
    }
}

// Two ranks that send first and then receive: cut where a launch is full, neither would ever come
// to what it receives.
TEST(RoundsTest, SendsAndReceivesOfAPairAreInTheSameRounds) {
  World cut_when_full(2), by_rounds(2);
  for (size_t rank = 0; rank < 2; ++rank) {
    std::vector<KernelMessage> messages;
    for (const bool receives : {false, true})
      for (size_t i = 0; i < static_cast<size_t>(kMaxMessages); ++i)
        messages.push_back(message_of(rank == 0 ? 1 : 0, receives, i));
    for (const size_t half : {0, 1})
      cut_when_full.launch(rank, std::span(messages).subspan(half * kMaxMessages, kMaxMessages));
    by_rounds.launch_rounds(rank, messages);
  }
  EXPECT_FALSE(cut_when_full.run());
  EXPECT_TRUE(by_rounds.run());
}

}  // namespace
}  // namespace torch::comms::ctran
