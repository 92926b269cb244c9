// The exchange of all ranks in memory, in every order that a seed can draw.

#include "bootstrap/address_exchange/exchange_protocol.hpp"

#include <gtest/gtest.h>

#include "bootstrap/address_exchange/random_world.hpp"

namespace torch::comms::bootstrap {
namespace {

using Phase = ExchangeProtocol::ExchangePhase;

void expect_all_know_all(const RandomWorld& world, int size) {
  const int rounds = BruckRounds{0, size}.count();
  for (int rank = 0; rank < size; ++rank) {
    ASSERT_EQ(world.machine(rank).phase(), Phase::kDone) << world.machine(rank).waiting_for();
    for (int other = 0; other < size; ++other)
      ASSERT_EQ(world.blobs(rank)[static_cast<size_t>(other)], RandomWorld::blob_of(other));
    EXPECT_LE(world.store_operations(rank), 2);
    EXPECT_EQ(world.frames(rank), 2 * rounds) << "one question and one answer a round";
  }
}

class ExchangeOfSize : public testing::TestWithParam<int> {};

TEST_P(ExchangeOfSize, EverybodyKnowsEverybodyWhateverTheOrder) {
  const int size = GetParam();
  for (unsigned seed = 0; seed < (size > 64 ? 1 : 20); ++seed) {
    RandomWorld world(size, seed);
    world.run();
    ASSERT_NO_FATAL_FAILURE(expect_all_know_all(world, size)) << "seed " << seed;
    EXPECT_EQ(world.now(), Moment{}) << "nobody waits for a clock when all goes well";
  }
}

INSTANTIATE_TEST_SUITE_P(Exchange, ExchangeOfSize, testing::Range(1, 65));
INSTANTIATE_TEST_SUITE_P(ExchangeAtScale, ExchangeOfSize, testing::Values(1000));

struct Ends {
  int done = 0, failed = 0, blaming = 0;
};

// How the survivors of `victim` ended.
Ends ends_of(const RandomWorld& world, int size, int victim) {
  Ends ends;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const auto& machine = world.machine(rank);
    EXPECT_GE(machine.phase(), Phase::kDone) << "rank " << rank << " hangs";
    if (machine.phase() == Phase::kDone) ++ends.done;
    if (machine.phase() != Phase::kFailed) continue;
    ++ends.failed;
    const int blamed = machine.failure().peer;
    if (blamed == victim) ++ends.blaming;
    // A rank that failed and went may be all that another one sees; the store knows the reason.
    else
      EXPECT_EQ(world.machine(blamed).phase(), Phase::kFailed) << "an innocent rank is blamed";
  }
  return ends;
}

TEST(Exchange, ARankThatDiesIsNamedToAllWhoNeedIt) {
  int deaths_that_mattered = 0, failed = 0, blaming = 0;
  for (int size = 2; size <= 33; ++size) {
    for (unsigned seed = 0; seed < 40; ++seed) {
      RandomWorld world(size, seed);
      std::mt19937 random(seed);
      const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
      const auto when =
          static_cast<int64_t>(random() % static_cast<unsigned>(size * 7 * 3)) + 3 * size;
      bool too_early = false, late = false;
      world.run([&](int64_t event) {
        if (event != when) return;
        // A rank that has not published cannot be known to have died; see the next test.
        too_early = !world.published(victim);
        late = world.machine(victim).phase() == Phase::kDone;
        if (!too_early && !late) world.kill(victim);
      });
      const auto where = testing::Message() << "size " << size << " seed " << seed;
      if (too_early || late || !world.dead(victim)) continue;
      const auto ends = ends_of(world, size, victim);
      EXPECT_LT(world.now(), std::chrono::seconds(5)) << where << ": long before the limit";
      if (ends.failed == 0) continue;  // it had done all that the others needed
      ++deaths_that_mattered;
      failed += ends.failed;
      blaming += ends.blaming;
    }
  }
  EXPECT_GT(deaths_that_mattered, 400);
  EXPECT_GT(blaming, failed * 8 / 10);
}

TEST(Exchange, ARankThatNeverComesMakesTheOthersFailAtTheirLimit) {
  for (int size = 2; size <= 17; ++size) {
    RandomWorld world(size, 7);
    const int absent = size / 2;
    world.leave_out(absent);
    world.run();
    const auto ends = ends_of(world, size, absent);
    EXPECT_EQ(ends.failed, size - 1);
    const auto& before = world.machine((absent + size - 1) % size);
    EXPECT_EQ(before.failure().code, Errc::kTimeout);
    EXPECT_EQ(before.failure().peer, absent);
    EXPECT_EQ(before.failure().reason,
              "rank " + std::to_string(absent) + " has not published its address in the store");
    EXPECT_LE(world.now(), ExchangeRetryPolicy{}.timeout + std::chrono::seconds(1));
  }
}

// One machine, by hand: rank 1 of 4. Its sources are 2 and 3, its clients 0 and 3.
class OneRank : public testing::Test {
 protected:
  std::vector<ExchangeAction::Kind> kinds() {
    std::vector<ExchangeAction::Kind> kinds;
    for (const auto& action : std::exchange(out, {})) kinds.push_back(action.kind);
    return kinds;
  }
  void ask_first() {
    machine.start(now, out);
    machine.on_contact(now, out);
    machine.on_connected();
    out.clear();
  }
  using Kind = ExchangeAction::Kind;
  using Kinds = std::vector<Kind>;
  ExchangeRetryPolicy retry_policy;
  ExchangeProtocol machine{1, 4, retry_policy};
  Moment now = std::chrono::seconds(100);
  ExchangeActions out;
};

TEST_F(OneRank, AsksAgainWithGrowingPatienceUntilItsSourceIsKnownToBeGone) {
  ask_first();
  machine.on_disconnected(now, false, out);
  Moment waited{};
  for (int i = 0; i < retry_policy.max_refusals; ++i) {
    EXPECT_TRUE(out.empty());
    const auto next = machine.next_time();
    EXPECT_GT(next, now);
    waited += next - now;
    now = next;
    machine.on_time(now, out);
    EXPECT_EQ(kinds(), Kinds{Kind::kRequest});
    machine.on_disconnected(now, true, out);
  }
  EXPECT_EQ(kinds(), Kinds{Kind::kFailed});
  EXPECT_EQ(machine.failure().code, Errc::kPeerFailed);
  EXPECT_EQ(machine.failure().peer, 2);
  EXPECT_LT(waited, std::chrono::seconds(1));
}

TEST_F(OneRank, GivesUpAConnectionThatDoesNotComeAbout) {
  machine.start(now, out);
  machine.on_contact(now, out);
  out.clear();
  now += retry_policy.connect_timeout;
  machine.on_time(now, out);
  EXPECT_EQ(kinds(), Kinds{Kind::kDisconnect});
  now = machine.next_time();
  machine.on_time(now, out);
  EXPECT_EQ(kinds(), Kinds{Kind::kRequest});
}

TEST_F(OneRank, ASecondProcessOfOneRankIsRefusedAndTheFirstOneServed) {
  ask_first();
  machine.on_request(1, 10, 77, out);
  machine.on_request(1, 11, 78, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].kind, Kind::kRejectDuplicate);
  EXPECT_EQ(out[0].link, 11u);
  out.clear();
  machine.on_response(now, out);
  EXPECT_EQ(out[2].kind, Kind::kRespond);
  EXPECT_EQ(out[2].link, 10u);
}

TEST_F(OneRank, ANewConnectionOfTheSameProcessReplacesTheOld) {
  ask_first();
  machine.on_request(1, 10, 77, out);
  machine.on_request(1, 11, 77, out);
  machine.on_client_disconnected(1, 10);
  machine.on_response(now, out);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[2].link, 11u);
}

TEST_F(OneRank, ItsFailureReachesThoseWhoAskedAndThoseWhoStillWill) {
  ask_first();
  machine.on_request(1, 10, 77, out);
  machine.on_peer_failure(2, {Errc::kPeerFailed, 0, "rank 0 has ended"}, out);
  EXPECT_EQ(kinds(), (Kinds{Kind::kSendFailureToSource, Kind::kSendFailure, Kind::kFailed}));
  EXPECT_EQ(machine.failure().peer, 0);
  machine.on_request(0, 12, 76, out);
  EXPECT_EQ(kinds(), Kinds{Kind::kSendFailure});
  EXPECT_EQ(machine.unserved(), 0);
}

TEST_F(OneRank, TheLimitNamesWhatWasWaitedFor) {
  ask_first();
  EXPECT_EQ(machine.waiting_for(), "rank 2 has not answered, round 1 of 2");
  machine.on_time(now + retry_policy.timeout, out);
  EXPECT_EQ(machine.failure().code, Errc::kTimeout);
  EXPECT_EQ(machine.failure().peer, 2);
  EXPECT_EQ(machine.next_time(), kNever);
}

TEST_F(OneRank, WhoKnowsAllLooksAfterThoseWhoDoNotAsk) {
  ask_first();
  machine.on_response(now, out);
  machine.on_connected();
  machine.on_response(now, out);
  out.clear();
  now = machine.next_time();
  machine.on_time(now, out);
  EXPECT_EQ(kinds(), (Kinds{Kind::kProbe, Kind::kProbe}));
  machine.on_probed(3, true, out);
  EXPECT_TRUE(out.empty());
  machine.on_probed(0, false, out);
  EXPECT_EQ(kinds(), Kinds{Kind::kFailed});
  EXPECT_EQ(machine.failure().peer, 0);
}

TEST_F(OneRank, ALateProbeOfAClientThatWasServedAndWentIsNoDeath) {
  ask_first();
  machine.on_response(now, out);
  machine.on_connected();
  machine.on_response(now, out);
  out.clear();
  machine.on_time(now + retry_policy.probe_after, out);
  EXPECT_EQ(kinds(), (Kinds{Kind::kProbe, Kind::kProbe}));
  machine.on_request(0, 10, 77, out);
  machine.on_served(0, out);
  EXPECT_EQ(kinds(), Kinds{Kind::kRespond});
  machine.on_probed(0, false, out);
  EXPECT_EQ(machine.phase(), Phase::kServing);
}

TEST_F(OneRank, EventsAfterTheEndAreHarmless) {
  ask_first();
  machine.on_failed({Errc::kPeerFailed, -1, "the store is gone"}, out);
  out.clear();
  machine.on_response(now, out);
  machine.on_disconnected(now, true, out);
  machine.on_time(kNever, out);
  machine.on_peer_failure(2, {}, out);
  machine.on_probed(3, false, out);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(machine.failure().reason, "the store is gone");
}

TEST(Exchange, IsSmall) { EXPECT_LE(sizeof(ExchangeProtocol), 384u); }

}  // namespace
}  // namespace torch::comms::bootstrap
