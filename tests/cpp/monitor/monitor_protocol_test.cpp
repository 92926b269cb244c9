#include "monitor/monitor_protocol.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <tuple>

#include "monitor/overlay_topology.hpp"

// What the ranks of a group tell each other, under a virtual clock: up to 100,000 of them.
namespace torch::comms::monitor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

Fingerprint fingerprint(uint64_t number, int64_t count = 10) {
  Fingerprint result;
  result.sequence = number;
  std::string_view("all_reduce").copy(result.name, sizeof result.name - 1);
  result.dtype = 6;
  result.element_bytes = 4;
  result.count = count;
  return result;
}

// A rank that is in collective `called`, of `count` elements, or was.
struct TestLog final : CollectiveLogReader {
  uint64_t called = 1, finished = 0, forgotten = 0;  // it knows no call up to `forgotten`
  int64_t count = 10;

  uint64_t first_incomplete() const override { return called > finished ? called : 0; }
  RankStatus status_of(uint64_t number) const override {
    RankStatus status;
    status.progress = {
        .called = called, .finished = finished, .fingerprint = fingerprint(called, count)};
    if (number > forgotten && number <= called)
      status.fingerprints[0] = fingerprint(number, number == called ? count : 10);
    return status;
  }
};

// All ranks of a group; messages take a random while between two of them, in their order.
class World {
 public:
  explicit World(int size, uint32_t seed = 1, MonitorTopology topology = MonitorTopology::kOverlay)
      : random_(seed) {
    for (int rank = 0; rank < size; ++rank) {
      logs_.emplace_back();
      carriers_.emplace_back(*this, rank);
    }
    for (int rank = 0; rank < size; ++rank)
      protocols_.push_back(std::make_unique<MonitorProtocol>(
          MonitorProtocol::MonitoredGroup{1, rank, size, topology}, log(rank),
          carriers_[static_cast<size_t>(rank)], retry_policy_));
    connections_.resize(static_cast<size_t>(size));
  }

  TestLog& log(int rank) { return logs_.at(static_cast<size_t>(rank)); }
  MonitorProtocol& protocol(int rank) { return *protocols_.at(static_cast<size_t>(rank)); }
  int size() const { return static_cast<int>(protocols_.size()); }
  Moment now() const { return now_; }
  size_t message_count() const { return message_count_; }
  const MonitorProtocol::MonitorRetryPolicy& retry_policy() const { return retry_policy_; }

  template <class Body>
  void act(int rank, const Body& body) {
    ASSERT_FALSE(is_sending_) << "a carrier must not call the protocol";
    if (protocols_.size() < 1000 || timed_ranks_.size() < 64) timed_ranks_.insert(rank);
    body(protocol(rank));
  }
  void delay_by(Moment delay) { delay_ = delay; }  // every message from now on
  void tick_by(Moment tick) { tick_ = tick; }      // whenever a rank reads the clock
  void stop(int rank) { set_state(rank, State::kStopped); }
  void resume(int rank) { set_state(rank, State::kAlive); }
  void remove_group(int rank) { set_state(rank, State::kNoGroup); }
  // Its neighbours see its connections end.
  void kill(int rank) {
    set_state(rank, State::kDead);
    for (const int neighbor : protocol(rank).neighbors())
      if (state_of(neighbor) == State::kAlive)
        act(neighbor, [&](MonitorProtocol& m) { m.on_peer_failed(rank, "it was killed"); });
  }
  // Until nothing more is to be delivered, and nothing waits for its time before `until`.
  void run(Moment until) {
    while (true) {
      Moment next = in_flight_.empty() ? kNever : in_flight_.top().at;
      int timer = -1;
      for (const int rank : timed_ranks_)
        if (state_of(rank) == State::kAlive && protocol(rank).next_time() < next)
          next = protocol(rank).next_time(), timer = rank;
      if (next > until) break;
      now_ = std::max(now_, next);
      if (timer >= 0) {
        act(timer, [&](MonitorProtocol& m) { m.on_time(); });
        continue;
      }
      const auto delivery = in_flight_.top();
      in_flight_.pop();
      if (state_of(delivery.to) == State::kAlive)
        act(delivery.to,
            [&](MonitorProtocol& m) { m.on_message(delivery.from, *delivery.message); });
      else if (state_of(delivery.to) == State::kNoGroup &&
               delivery.message->kind == MonitorMessage::Kind::kQuery)
        send(delivery.to, delivery.from,
             {.kind = MonitorMessage::Kind::kReply, .group = 1, .query = delivery.message->query});
    }
    now_ = until;
  }

 private:
  enum class State : uint8_t { kAlive, kStopped, kDead, kNoGroup };
  struct Delivery {
    Moment at;
    size_t number;
    int from, to;
    std::shared_ptr<const MonitorMessage> message;
    bool operator<(const Delivery& other) const {  // the first one is the top
      return std::tie(at, number) > std::tie(other.at, other.number);
    }
  };
  State state_of(int rank) const {
    const auto found = states_.find(rank);
    return found == states_.end() ? State::kAlive : found->second;
  }
  void set_state(int rank, State state) { states_[rank] = state; }
  void send(int from, int to, const MonitorMessage& message) {
    ASSERT_TRUE(std::ranges::binary_search(protocol(from).neighbors(), to))
        << from << " has no connection to " << to;
    auto& last = connections_[static_cast<size_t>(from)][to];
    last = std::max(last, now_ + delay_ + microseconds(20 + random_() % 200));
    // As it travels.
    auto copy =
        std::make_shared<const MonitorMessage>(MonitorMessage::parse(message.serialize(), size()));
    in_flight_.push({last, message_count_++, from, to, std::move(copy)});
  }
  class Carrier final : public MessageCarrier {
   public:
    Carrier(World& world, int rank) : world_(world), rank_(rank) {}
    void send(int rank, const MonitorMessage& message) override {
      world_.is_sending_ = true;
      world_.send(rank_, rank, message);
      world_.is_sending_ = false;
    }
    Moment now() const noexcept override {
      const Moment now = world_.now_;
      world_.now_ += world_.tick_;
      return now;
    }

   private:
    World& world_;
    const int rank_;
  };

  MonitorProtocol::MonitorRetryPolicy retry_policy_;
  std::deque<TestLog> logs_;
  std::deque<Carrier> carriers_;
  std::vector<std::unique_ptr<MonitorProtocol>> protocols_;
  std::vector<std::map<int, Moment>> connections_;
  std::map<int, State> states_;
  std::set<int> timed_ranks_;  // whose timers run; of many ranks some
  std::priority_queue<Delivery> in_flight_;
  std::mt19937 random_;
  Moment now_{0}, delay_{0}, tick_{0};
  size_t message_count_ = 0;
  bool is_sending_ = false;
};

// Groups of these sizes: with both topologies, as far as all ranks may be connected.
struct GroupShape {
  int size;
  MonitorTopology topology;
};
std::vector<GroupShape> group_shapes(int first, int end) {
  std::vector<GroupShape> all;
  for (int size = first; size < end; ++size) {
    all.push_back({size, MonitorTopology::kOverlay});
    if (size <= 16) all.push_back({size, MonitorTopology::kComplete});
  }
  return all;
}

constexpr MonitorTopology kTopologies[] = {MonitorTopology::kOverlay, MonitorTopology::kComplete};

void query_progress(World& world, int rank) {
  world.act(rank,
            [&](MonitorProtocol& m) { m.query_progress(world.log(rank).first_incomplete()); });
}
void report_mismatch(World& world, int rank, uint64_t number, const std::string& observation = {}) {
  world.act(rank, [&](MonitorProtocol& m) { m.report_mismatch(number, observation); });
}
void check_later(World& world, int rank, Moment began = Moment(0)) {
  world.act(rank, [&](MonitorProtocol& m) { m.check_mismatch_later(began); });
}
void check_now(World& world, int rank) {
  world.act(rank, [&](MonitorProtocol& m) { m.check_mismatch_now(); });
}
void start_check(World& world, int rank, uint64_t number) {
  world.act(rank, [&](MonitorProtocol& m) { m.start_consistency_check(number); });
}

TEST(Graph, HasFewConnectionsAndStaysWholeWithoutAnyOneRank) {
  for (int size = 2; size < 200; ++size)
    for (int failed = 0; failed < size; ++failed) {
      std::set<int> seen{failed == 0 ? 1 : 0};
      std::vector<int> todo(seen.begin(), seen.end());
      while (!todo.empty()) {
        const int rank = todo.back();
        todo.pop_back();
        const auto neighbors = overlay_neighbors(rank, size);
        EXPECT_LE(neighbors.size(), 5u);
        for (const int other : neighbors) {
          const auto back = overlay_neighbors(other, size);
          EXPECT_TRUE(std::ranges::binary_search(back, rank));
          if (other != failed && seen.insert(other).second) todo.push_back(other);
        }
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(size) - 1) << size << " ranks without " << failed;
    }
}

TEST(Member, EverybodyHearsWhoIsLost) {
  for (const auto& [size, topology] : group_shapes(2, 40))
    for (const int failed : {0, size / 2, size - 1}) {
      World world(size, 1, topology);
      world.kill(failed);
      world.run(milliseconds(10));
      for (int rank = 0; rank < size; ++rank) {
        if (rank == failed) continue;
        EXPECT_EQ(world.protocol(rank).failed_ranks(), std::vector{failed})
            << "rank " << rank << " of " << size;
        EXPECT_EQ(world.protocol(rank).failure()->reason,
                  "rank " + std::to_string(failed) + " has failed: it was killed");
      }
    }
}

TEST(Member, WhoLeavesBecauseOfAFailureSaysWhy) {
  for (const auto topology : kTopologies) {
    World world(9, 1, topology);
    world.act(7, [](MonitorProtocol& m) { m.leave_failed("it has had enough"); });
    world.run(milliseconds(10));
    for (const int rank : {0, 1, 2, 3, 4, 5, 6, 8}) {
      const auto failure = world.protocol(rank).failure();
      ASSERT_TRUE(failure) << "rank " << rank;
      EXPECT_EQ(failure->code, Errc::kPeerFailed);
      EXPECT_EQ(failure->reason, "rank 7 has failed: it has had enough");
      EXPECT_EQ(failure->culprits, std::vector{7});
    }
  }
}

TEST(Member, WhoClosesInGoodOrderIsNotLost) {
  for (const auto topology : kTopologies) {
    World world(5, 1, topology);
    world.act(1, [](MonitorProtocol& m) { m.close(); });
    world.run(milliseconds(10));
    world.kill(1);
    world.run(milliseconds(20));
    for (const int rank : {0, 2, 3, 4})
      EXPECT_EQ(world.protocol(rank).failed_ranks(), std::vector<int>());
    query_progress(world, 4);
    world.run(seconds(1));
    const auto& report = world.protocol(4).report();
    EXPECT_NE(report->text.find("rank 1: it has closed the communicator"), std::string::npos)
        << report->text;
    EXPECT_EQ(report->culprits, std::vector{1});
  }
}

// Both have closed it, and each receives the other one's.
TEST(Member, WhoClosesTellsWhatItHasPostedAndHearsOfTheOthers) {
  for (const auto topology : kTopologies) {
    World world(3, 1, topology);
    std::vector<PostedCounts> posted(3);
    for (uint64_t rank = 0; rank < 3; ++rank) posted[rank] = {.sends = rank, .receives = 10 + rank};
    world.log(2).called = 7;
    for (const int rank : {2, 0}) world.act(rank, [&](MonitorProtocol& m) { m.close(posted); });
    world.run(milliseconds(10));
    for (const int rank : {0, 1}) {
      const auto& closes = world.protocol(rank).peer_closes();
      EXPECT_EQ(closes.size(), rank == 0 ? 1u : 2u);
      ASSERT_TRUE(closes.contains(2)) << rank;
      EXPECT_EQ(closes.at(2).last, 7u);
      EXPECT_EQ(closes.at(2).posted, posted[static_cast<size_t>(rank)]);
    }
    EXPECT_TRUE(world.protocol(2).peer_closes().contains(0));
    EXPECT_EQ(world.protocol(2).failed_ranks(), std::vector<int>());
  }
}

TEST(Member, AQuestionFindsWhoIsBehind) {
  for (int size = 2; size < 40; ++size) {
    World world(size);
    for (int rank = 0; rank < size; ++rank) world.log(rank) = {};
    const int late = size / 2;
    for (int rank = 0; rank < size; ++rank)
      if (rank != late) world.log(rank).called = 2, world.log(rank).finished = 1;
    world.log(late).finished = 1;
    query_progress(world, late == 0 ? 1 : 0);
    world.run(milliseconds(10));
    for (int rank = 0; rank < size; ++rank) {  // who did not ask is told, too
      ASSERT_TRUE(world.protocol(rank).report()) << rank << " of " << size;
      EXPECT_EQ(world.protocol(rank).report()->culprits, std::vector{late});
      const auto text = "rank " + std::to_string(late) + " is 1 collective behind, since number 2";
      EXPECT_TRUE(world.protocol(rank).report()->text.starts_with(text))
          << world.protocol(rank).report()->text;
    }
  }
}

TEST(Member, ManyQuestionsAtOnceBecomeOne) {
  World world(64);
  for (int rank = 0; rank < 64; ++rank) query_progress(world, rank);
  world.run(milliseconds(20));
  for (int rank = 0; rank < 64; ++rank)
    EXPECT_TRUE(world.protocol(rank).report()) << "rank " << rank;
  // Two messages a connection and question, and the outcome: no more than a few questions spread.
  EXPECT_LT(world.message_count(), 64u * 5 * 10);
}

TEST(Member, AReportHasTheAnswersThoughTheClockGoesOnWhileARankAsks) {
  for (const auto topology : kTopologies) {
    World world(6, 1, topology);
    world.tick_by(nanoseconds(1));
    world.stop(5);
    query_progress(world, 0);
    world.run(world.retry_policy().reply_timeout);
    ASSERT_TRUE(world.protocol(0).report());
    EXPECT_EQ(world.protocol(0).report()->culprits, std::vector{5});
  }
}

TEST(Member, WhoDoesNotAnswerIsNamedAndTheOthersCount) {
  for (const auto topology : kTopologies) {
    for (const int silent : {0, 1, 6, 12}) {
      World world(13, 1, topology);
      world.stop(silent);
      const int querying_rank = silent == 5 ? 4 : 5;
      query_progress(world, querying_rank);
      world.run(milliseconds(20));
      EXPECT_FALSE(world.protocol(querying_rank).report());
      world.run(world.retry_policy().reply_timeout + milliseconds(50));
      ASSERT_TRUE(world.protocol(querying_rank).report());
      const auto& report = *world.protocol(querying_rank).report();
      EXPECT_EQ(report.culprits, std::vector{silent}) << report.text;
      EXPECT_TRUE(report.text.starts_with("rank " + std::to_string(silent) +
                                          " did not answer within 500 ms"))
          << report.text;
    }
  }
}

// Its question is put out by one of a rank that then stops.
TEST(Member, AQuestionEndsThoughTheOneThatBeatItDoesNot) {
  for (const auto topology : kTopologies) {
    World world(9, 1, topology);
    query_progress(world, 8);
    query_progress(world, 3);
    world.run(microseconds(300));
    world.stop(3);
    world.run(seconds(2));
    ASSERT_TRUE(world.protocol(8).report());
  }
}

TEST(Member, ADifferentCallIsFoundWhileAllWait) {
  for (const auto& [size, topology] : group_shapes(3, 40)) {
    World world(size, 1, topology);
    const int odd = size - 1;
    world.log(odd).count = 11;
    check_later(world, 0);
    world.run(milliseconds(10));
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
      EXPECT_EQ(world.protocol(rank).mismatch()->culprits, std::vector{odd});
      EXPECT_EQ(world.protocol(rank).mismatch()->number, 1u);
    }
  }
}

// The one who is behind knows nothing of what they disagree about, whatever its rank.
TEST(Member, ADifferentCallIsFoundThoughARankThatIsBehindAsksToo) {
  for (const auto& [size, topology] : group_shapes(3, 40))
    for (const int behind : {0, size / 2, size - 1}) {
      World world(size, 1, topology);
      for (int rank = 0; rank < size; ++rank)
        if (rank != behind) world.log(rank).called = 2, world.log(rank).finished = 1;
      const int odd = behind == 1 ? 2 : 1;
      world.log(odd).count = 11;
      for (int rank = 0; rank < size; ++rank) check_now(world, rank);
      const bool asks_again = topology == MonitorTopology::kComplete;
      world.run(milliseconds(20) + asks_again * world.retry_policy().reply_timeout);
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
        EXPECT_EQ(world.protocol(rank).mismatch()->number, 2u);
      }
    }
}

// Ranks that hardly get any time answer late: asking again is no new question.
TEST(Member, ADifferentCallIsFoundThoughAnswersTakeLongerThanItTakesToAskAgain) {
  for (const auto& [size, topology] : group_shapes(2, 8)) {
    World world(size, 1, topology);
    world.delay_by(milliseconds(60));
    world.log(size - 1).count = 11;
    for (int turn = 0; turn < 8; ++turn) {
      for (int rank = 0; rank < size; ++rank) check_now(world, rank);
      world.run(milliseconds(100 * (turn + 1)));
    }
    for (int rank = 0; rank < size; ++rank)
      EXPECT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
  }
}

TEST(Member, ARankThatHasNotCalledDisagreesWithNobody) {
  for (const auto topology : kTopologies) {
    World world(4, 1, topology);
    world.log(2).called = 0;
    check_later(world, 0);
    world.run(milliseconds(10));
    EXPECT_FALSE(world.protocol(0).mismatch());
    // When it comes it is compared: by whoever looks again.
    world.log(2).called = 1;
    world.log(2).count = 3;
    world.run(milliseconds(300));
    check_later(world, 1);
    world.run(milliseconds(310));
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(world.protocol(rank).mismatch());
  }
}

TEST(Member, ALongWaitIsLookedAtLessAndLess) {
  World world(8);
  for (Moment at{0}; at < seconds(60); at += milliseconds(5)) {
    for (int rank = 0; rank < 8; ++rank) check_later(world, rank);
    world.run(at);
  }
  // Some twelve looks of all together, of two messages a connection each, however many want to
  // look.
  EXPECT_LT(world.message_count(), 12u * 8 * 5 * 2 * 2);
}

TEST(Member, ACheckLetsAllGoOrNobody) {
  for (const auto& [size, topology] : group_shapes(2, 20)) {
    World world(size, 1, topology);
    for (int rank = 1; rank < size; ++rank) start_check(world, rank, 1);
    world.run(milliseconds(10));
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(world.protocol(rank).last_consistent(), 0u);
    start_check(world, 0, 1);
    world.run(milliseconds(20));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(world.protocol(rank).last_consistent(), 1u);
      world.log(rank).called = 2;
    }
    world.log(size - 1).count = 5;
    for (int rank = 0; rank < size; ++rank) start_check(world, rank, 2);
    world.run(milliseconds(30));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(world.protocol(rank).last_consistent(), 1u);
      EXPECT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
    }
  }
}

void announce_abort(World& world, int rank, Errc code = Errc::kTimeout) {
  world.act(rank, [&](MonitorProtocol& m) {
    m.announce_abort({.code = code, .reason = "too late", .culprits = {0}});
  });
}

TEST(Member, WhoEndsLearnsOfItWhenAllOthersKnow) {
  for (const auto& [size, topology] : group_shapes(2, 40))
    for (const int ends : {0, size / 2, size - 1}) {
      World world(size, 1, topology);
      announce_abort(world, ends);
      while (!world.protocol(ends).is_abort_acknowledged()) {
        ASSERT_LT(world.now(), milliseconds(20));
        world.run(world.now() + microseconds(20));
      }
      for (int rank = 0; rank < size; ++rank) {
        const auto& peer_abort = world.protocol(rank).peer_abort();
        ASSERT_EQ(peer_abort.has_value(), rank != ends) << "rank " << rank << " of " << size;
        if (rank == ends) continue;
        EXPECT_EQ(peer_abort->rank, ends);
        EXPECT_EQ(peer_abort->reason.code, Errc::kTimeout);
        EXPECT_EQ(peer_abort->reason.reason, "too late");
        EXPECT_EQ(peer_abort->reason.culprits, std::vector{0});
        EXPECT_LE(peer_abort->since, world.now());
      }
    }
}

// Whoever's question is put out waits for the outcome of the other.
TEST(Member, WhereSeveralEndAllLearnOfItWhenAllKnow) {
  for (const auto topology : kTopologies) {
    const uint32_t most = topology == MonitorTopology::kComplete ? 14 : 60;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      std::mt19937 random(seed);
      World world(static_cast<int>(2 + random() % most), seed, topology);
      const auto all_know = [&] {
        for (int rank = 0; rank < world.size(); ++rank)
          if (!world.protocol(rank).peer_abort() && !world.protocol(rank).is_abort_acknowledged())
            return false;
        return true;
      };
      std::set<int> ending;
      for (int rank = 0; rank < world.size(); ++rank)
        if (rank == 0 || random() % 3 == 0) ending.insert(rank);
      for (const int rank : ending) {
        if (random() % 2 == 0) query_progress(world, rank);
        announce_abort(world, rank);
        world.run(world.now() + microseconds(random() % 200));
      }
      std::set<int> waiting = ending;
      while (!waiting.empty()) {
        ASSERT_LT(world.now(), seconds(1)) << "seed " << seed;
        world.run(world.now() + microseconds(20));
        for (const int rank : ending)
          if (world.protocol(rank).is_abort_acknowledged() && waiting.erase(rank) > 0) {
            EXPECT_TRUE(all_know()) << "rank " << rank << ", seed " << seed;
          }
      }
    }
  }
}

// What they did not call alike may be why one is late; who is interrupted calls something later.
TEST(Member, WhoEndsFindsADifferentCallButWhereItIsInterrupted) {
  for (const auto& [code, is_found] : {std::pair{Errc::kTimeout, true}, {Errc::kAborted, false}})
    for (const auto& [size, topology] : group_shapes(2, 20)) {
      World world(size, 1, topology);
      world.log(0).count = 11;
      announce_abort(world, 0, code);
      world.run(milliseconds(20));
      EXPECT_TRUE(world.protocol(0).is_abort_acknowledged());
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(world.protocol(rank).mismatch().has_value(), is_found) << rank << " of " << size;
        EXPECT_EQ(world.protocol(rank).peer_abort().has_value(), rank != 0);
      }
    }
}

TEST(Member, AnEndIsNotHeldUpByWhoDoesNotAnswer) {
  for (const auto topology : kTopologies) {
    World world(13, 1, topology);
    world.stop(6);
    world.kill(7);
    announce_abort(world, 5);
    world.run(world.retry_policy().reply_timeout + milliseconds(50));
    EXPECT_TRUE(world.protocol(5).is_abort_acknowledged());
    for (const int rank : {0, 4, 8, 12}) EXPECT_TRUE(world.protocol(rank).peer_abort()) << rank;
  }
}

TEST(Member, RandomFaultsLeaveNobodyWithoutAReport) {
  for (const auto topology : kTopologies) {
    const uint32_t most = topology == MonitorTopology::kComplete ? 14 : 60;
    for (uint32_t seed = 0; seed < 300; ++seed) {
      std::mt19937 random(seed);
      World world(static_cast<int>(3 + random() % most), seed, topology);
      std::set<int> gone;
      for (uint32_t i = 0; i < random() % 4; ++i) {
        const int rank = static_cast<int>(random()) % world.size();
        const int other = (rank + world.size()) % world.size();
        if (gone.size() + 2 >= static_cast<size_t>(world.size()) || !gone.insert(other).second)
          continue;
        random() % 2 == 0 ? world.kill(other) : world.stop(other);
        if (random() % 2 == 0) world.run(world.now() + microseconds(random() % 1000));
      }
      std::set<int> querying;
      for (int rank = 0; rank < world.size(); ++rank)
        if (!gone.contains(rank) && random() % 3 == 0) querying.insert(rank);
      for (const int rank : querying) query_progress(world, rank);
      world.run(world.now() + world.retry_policy().reply_timeout + milliseconds(110));
      for (const int rank : querying)
        EXPECT_TRUE(world.protocol(rank).report()) << "rank " << rank << ", seed " << seed;
    }
  }
}

// ---- where every rank reaches every other

TEST(Complete, AQuestionIsAnsweredAtOnceAndItsReportIsOfTheOneThatAskedAlone) {
  World world(8, 1, MonitorTopology::kComplete);
  for (int rank = 0; rank < 8; ++rank)
    if (rank != 5) world.log(rank).called = 2, world.log(rank).finished = 1;
  query_progress(world, 2);
  world.run(milliseconds(1));
  EXPECT_EQ(world.message_count(), 2u * 7);
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(world.protocol(rank).report().has_value(), rank == 2) << rank;
  EXPECT_EQ(world.protocol(2).report()->culprits, std::vector{5});
}

// Each waits for its own answers, and no longer than it said.
TEST(Complete, AStoppedRankIsTheOnlyOneThatIsNamedWhoeverAsksWhen) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    World world(16, seed, MonitorTopology::kComplete);
    world.stop(6);
    std::vector<Moment> asked(16);
    for (int rank = 0; rank < 16; ++rank) {
      if (rank == 6) continue;
      world.run(world.now() + microseconds(random() % 1300));
      asked[static_cast<size_t>(rank)] = world.now();
      query_progress(world, rank);
    }
    world.run(seconds(1));
    for (int rank = 0; rank < 16; ++rank) {
      if (rank == 6) continue;
      const auto& report = world.protocol(rank).report();
      ASSERT_TRUE(report) << rank;
      EXPECT_EQ(report->culprits, std::vector{6}) << report->text;
      EXPECT_TRUE(report->text.starts_with("rank 6 did not answer within 500 ms")) << report->text;
      EXPECT_EQ(report->since - asked[static_cast<size_t>(rank)],
                world.retry_policy().reply_timeout);
    }
  }
}

TEST(Complete, ARankThatHasNoSuchGroupSaysSo) {
  World world(4, 1, MonitorTopology::kComplete);
  world.remove_group(3);
  query_progress(world, 0);
  world.run(milliseconds(10));
  const auto& report = world.protocol(0).report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->culprits, std::vector{3});
  EXPECT_NE(report->text.find("rank 3: not in this communicator"), std::string::npos)
      << report->text;
}

// Rank 1 has left, as the others have learned beside the monitor, and still waits for rank 3.
TEST(Complete, WhoHasLeftHearsOfDeathsAndDisagreements) {
  World world(4, 1, MonitorTopology::kComplete);
  for (const int rank : {0, 2, 3}) world.act(rank, [](MonitorProtocol& m) { m.on_peer_closed(1); });
  world.act(0, [](MonitorProtocol& m) { m.on_peer_failed(3, "it was killed"); });
  world.run(milliseconds(10));
  EXPECT_EQ(world.protocol(1).failed_ranks(), std::vector{3});
  EXPECT_EQ(world.protocol(0).failed_ranks(), std::vector{3});
  world.log(2).count = 11;
  report_mismatch(world, 0, 1);
  world.run(milliseconds(20));
  EXPECT_TRUE(world.protocol(1).mismatch());
  // What it asks itself is answered.
  query_progress(world, 1);
  world.run(milliseconds(30));
  EXPECT_TRUE(world.protocol(1).report());
}

TEST(Complete, WhoLooksIsToldWhenToLookAgain) {
  World world(4, 1, MonitorTopology::kComplete);
  Moment next{0};
  std::vector<int64_t> looks_ms;
  for (int i = 0; i < 8; ++i) {
    world.run(next);
    world.act(2, [&](MonitorProtocol& m) { next = m.check_mismatch_later(Moment(0)); });
    looks_ms.push_back((next - world.now()) / milliseconds(1));
  }
  EXPECT_EQ(looks_ms, (std::vector<int64_t>{200, 400, 800, 1600, 3200, 6400, 10'000, 10'000}));
}

// ---- what a rank has seen in its data

TEST(Observed, OfTwoDisagreementsTheEarlierOneCounts) {
  for (const auto& [size, topology] : group_shapes(3, 20)) {
    World world(size, 1, topology);
    for (int rank = 0; rank < size; ++rank)
      world.log(rank).called = 4, world.log(rank).finished = 3;
    world.log(0).called = 5, world.log(0).finished = 4;
    world.log(1).count = 11;
    // Rank 0 waits for all to come to 5; the others are held in 4.
    report_mismatch(world, 0, 5);
    world.run(milliseconds(3));
    report_mismatch(world, size - 1, 4);
    world.run(milliseconds(40));
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
      EXPECT_EQ(world.protocol(rank).mismatch()->number, 4u);
      if (size > 3) {
        EXPECT_EQ(world.protocol(rank).mismatch()->culprits, std::vector{1});
      }
    }
    const size_t messages = world.message_count();
    world.run(seconds(2));
    EXPECT_EQ(world.message_count(), messages) << "nobody asks any more";
  }
}

TEST(Observed, WhatAnotherRankHasSeenIsSaidWhereTheCallsAreEqual) {
  for (const auto& [size, topology] : group_shapes(2, 20)) {
    World world(size, 1, topology);
    for (int rank = 0; rank < size; ++rank)
      world.log(rank).called = 7, world.log(rank).finished = 6;
    report_mismatch(world, size - 1, 7, "rank 1 sends too little");
    report_mismatch(world, 0, 7);
    world.run(milliseconds(20));
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
      const auto& reason = world.protocol(rank).mismatch()->reason;
      EXPECT_TRUE(reason.ends_with("as number 7; rank 1 sends too little")) << reason;
      EXPECT_TRUE(world.protocol(rank).mismatch()->culprits.empty());
    }
  }
}

TEST(Observed, ARankThatIsBehindIsAskedAgainUntilItComes) {
  for (const auto& [size, topology] : group_shapes(4, 20)) {
    World world(size, 1, topology);
    const int behind = size - 1;
    world.log(0).count = 11;
    world.log(behind).called = 0;
    report_mismatch(world, 0, 1);
    world.run(milliseconds(200));
    for (int rank = 0; rank < size; ++rank) EXPECT_FALSE(world.protocol(rank).mismatch());
    world.log(behind).called = 1;
    world.run(milliseconds(230));
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
      EXPECT_EQ(world.protocol(rank).mismatch()->culprits, std::vector{0});
      EXPECT_EQ(world.protocol(rank).mismatch()->reason.find("answer"), std::string::npos);
    }
  }
}

// As where roots wait for each other: no message meets another one.
TEST(Complete, ALateCallWaitsForWhoIsBehindToKnowTheMinority) {
  for (const bool comes : {false, true}) {
    World world(3, 1, MonitorTopology::kComplete);
    world.log(0).count = 11;
    world.log(2).called = 0;
    for (const int rank : {0, 1}) check_later(world, rank);
    world.run(milliseconds(200));
    for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(world.protocol(rank).mismatch());
    if (comes) world.log(2).called = 1;
    world.run(milliseconds(comes ? 230 : 520));
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(world.protocol(rank).mismatch()) << rank;
      const auto& [number, reason, culprits] = *world.protocol(rank).mismatch();
      EXPECT_EQ(culprits, std::vector{comes ? 0 : 2}) << reason;
      EXPECT_EQ(reason.find("where the ranks were") == std::string::npos, comes) << reason;
    }
  }
}

// As where this process was stopped while it asked.
TEST(Observed, WhoComesLateToItsOwnQuestionKnowsTheAnswers) {
  for (const auto topology : kTopologies) {
    World world(9, 1, topology);
    world.log(0).count = 11;
    world.log(8).called = 0;
    report_mismatch(world, 0, 1);
    world.run(milliseconds(200));
    world.stop(0);
    world.run(seconds(3));
    world.resume(0);
    world.run(seconds(4));
    ASSERT_TRUE(world.protocol(0).mismatch());
    const auto& reason = world.protocol(0).mismatch()->reason;
    EXPECT_NE(reason.find("rank 8 is 1 collective behind"), std::string::npos) << reason;
    EXPECT_EQ(reason.find("within 500 ms"), std::string::npos) << reason;
  }
}

TEST(Observed, ARankThatDoesNotComeIsNamedWithTheProgressOfAll) {
  for (const bool is_stopped : {false, true})
    for (const auto& [size, topology] : group_shapes(3, 20)) {
      World world(size, 1, topology);
      const int late = size - 1;
      world.log(0).count = 11;
      if (is_stopped)
        world.stop(late);
      else
        world.log(late).called = 0;
      report_mismatch(world, 0, 1);
      world.run(world.retry_policy().reply_timeout + milliseconds(2));
      for (int rank = 0; rank < (is_stopped ? late : size); ++rank) {
        ASSERT_TRUE(world.protocol(rank).mismatch()) << rank << " of " << size;
        const auto& mismatch = *world.protocol(rank).mismatch();
        const auto name = "rank " + std::to_string(late);
        const auto text = name + " did not answer; " +
                          (is_stopped ? name + " did not answer within 500 ms"
                                      : name + " is 1 collective behind, since number 1");
        EXPECT_NE(mismatch.reason.find(text), std::string::npos) << mismatch.reason;
        EXPECT_NE(mismatch.reason.find("where the ranks were: "), std::string::npos);
        // Of three ranks, two disagree.
        EXPECT_EQ(mismatch.culprits, std::vector{size == 3 ? late : 0});
      }
    }
}

TEST(Observed, ARankThatIsFarAheadIsNamedByItsPresentCall) {
  for (const auto topology : kTopologies) {
    World world(4, 1, topology);
    auto& ahead = world.log(3);
    ahead.called = ahead.finished = ahead.forgotten = 30;
    report_mismatch(world, 1, 1);
    world.run(milliseconds(10));
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(world.protocol(rank).mismatch()) << rank;
      EXPECT_EQ(world.protocol(rank).mismatch()->culprits, std::vector{3});
      EXPECT_NE(world.protocol(rank).mismatch()->reason.find("as number 30"), std::string::npos);
    }
  }
}

// Its reports are those of the ranks that are left, at about the time at which all were asked.
TEST(Observed, AQuestionThatAnotherOneStoppedEndsThoughThatOneDoesNot) {
  World world(9);
  world.log(1).called = 0;
  report_mismatch(world, 8, 1);
  report_mismatch(world, 3, 1);
  world.run(milliseconds(20));
  world.stop(3);
  world.run(seconds(2));
  EXPECT_TRUE(world.protocol(8).report() || world.protocol(8).mismatch());
}

// Nobody but the one who asks has work that grows with the size.
TEST(Member, AHundredThousandRanksAreAskedAndHearOfADeath) {
  constexpr int kSize = 100'000;
  World world(kSize);
  world.log(77'777).finished = 1;
  world.log(77'777).called = 1;
  for (int rank = 0; rank < kSize; ++rank)
    if (rank != 77'777) world.log(rank).called = 2, world.log(rank).finished = 1;
  query_progress(world, 0);
  world.run(milliseconds(100));
  ASSERT_TRUE(world.protocol(0).report());
  EXPECT_EQ(world.protocol(0).report()->culprits, std::vector{77'777});
  EXPECT_TRUE(world.protocol(99'999).report());
  EXPECT_LT(world.message_count(), size_t{kSize} * 5 * 3);
  const size_t before = world.message_count();
  world.kill(5);
  world.run(milliseconds(200));
  for (const int rank : {0, 1, 4, 6, 49'999, 50'000, 99'999})
    EXPECT_EQ(world.protocol(rank).failed_ranks(), std::vector{5}) << "rank " << rank;
  EXPECT_LT(world.message_count() - before, size_t{kSize} * 5);
}

}  // namespace
}  // namespace torch::comms::monitor
