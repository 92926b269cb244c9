// How members meet, over the memory of this process: threads are members.

#include "core/rendezvous/reconfiguration.hpp"

#include <gtest/gtest.h>

#include <set>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "core/rendezvous/membership_proposals.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous_ranks.hpp"

namespace torch::comms {
namespace {

using Handles = std::vector<InitHandle>;

class Party {
 public:
  explicit Party(int size, milliseconds timeout = seconds(30))
      : Party(size, timeout, c10::make_intrusive<c10d::HashStore>()) {}
  // Without a store each member serves one.
  static Party with_own_stores(int size, milliseconds timeout = seconds(30)) {
    const Variable rank("TORCHCOMM_RANK", "0"), of("TORCHCOMM_SIZE", "1");
    return {size, timeout, nullptr};
  }
  Reconfiguration& operator[](int member) { return *members_[static_cast<size_t>(member)]; }
  Handles handles(const std::vector<int>& members) {
    Handles list;
    for (const int member : members) list.push_back((*this)[member].handle());
    return list;
  }
  // What came of it: the rank, or the error.
  struct Result {
    int rank = -1;
    uint64_t identity = 0;
    std::optional<CommError> error;
    milliseconds took{};
  };
  Result call(int member, int64_t uuid, const Handles& handles) {
    const auto begin = Clock::now();
    Result result;
    auto& self = (*this)[member];
    try {
      const auto members = self.parse_members(
          {.uuid = uuid, .handles = handles, .timeout = {}, .hints = {}}, timeout_);
      self.run(members,
               [&](const Rendezvous& met) {
                 result.rank = met.rank;
                 result.identity = met.identity;
               })
          ->wait();
    } catch (const CommError& e) {
      result.error = e;
    }
    result.took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    return result;
  }
  // Returns when this rank of a membership has begun to wait for the others.
  void await_arrival(int rank) {
    std::string key = kReconfigureKeyPrefix;
    key.append("/seen/").append(std::to_string(rank));
    StoreKeyValue(store_, bootstrap::Deadline(seconds(30)), {}).get(key, seconds(30));
  }
  std::vector<Result> together(const std::vector<std::function<Result()>>& calls) {
    std::vector<Result> results(calls.size());
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < calls.size(); ++i)
      threads.emplace_back([&, i] { results[i] = calls[i](); });
    threads.clear();
    return results;
  }
  // All of `members` at once.
  std::vector<Result> form(const std::vector<int>& members, int64_t uuid) {
    const auto list = handles(members);
    std::vector<std::function<Result()>> calls;
    for (const int member : members)
      calls.emplace_back([this, member, uuid, list] { return call(member, uuid, list); });
    return together(calls);
  }

 private:
  Party(int size, milliseconds timeout, StorePtr store)
      : store_(std::move(store)), timeout_(timeout) {
    for (int i = 0; i < size; ++i)
      members_.push_back(
          std::make_unique<Reconfiguration>("gloo", "party", with_store(store_, timeout)));
  }

  StorePtr store_;
  milliseconds timeout_;
  std::vector<std::unique_ptr<Reconfiguration>> members_;
};

TEST(Reconfigure, TheListGivesTheRanks) {
  Party party(3);
  const auto list = party.handles({2, 0, 1});
  const auto results = party.together({[&] { return party.call(0, 1, list); },
                                       [&] { return party.call(1, 1, list); },
                                       [&] { return party.call(2, 1, list); }});
  EXPECT_EQ(results[0].rank, 1);
  EXPECT_EQ(results[1].rank, 2);
  EXPECT_EQ(results[2].rank, 0);
}

TEST(Reconfigure, ThoseThatMeetShareANumberThatOthersDoNotHave) {
  Party party(4);
  std::set<uint64_t> identities;
  for (const int64_t uuid : {1, 2})
    for (const auto& pair : {std::vector{0, 1}, {2, 3}}) {
      const auto list = party.handles(pair);
      const auto results = party.together({[&] { return party.call(pair[0], uuid, list); },
                                           [&] { return party.call(pair[1], uuid, list); }});
      EXPECT_EQ(results[0].identity, results[1].identity);
      EXPECT_TRUE(identities.insert(results[0].identity).second);
    }
}

TEST(Reconfigure, ThoseThatDisagreeLearnItLongBeforeTheirLimit) {
  Party party(3, seconds(60));
  const auto all = party.handles({0, 1, 2}), two = party.handles({0, 1});
  const auto results =
      party.together({[&] { return party.call(0, 1, all); }, [&] { return party.call(1, 1, two); },
                      [&] { return party.call(2, 1, all); }});
  for (const auto& result : results) {
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code(), Errc::kMismatch) << result.error->what();
    EXPECT_EQ(result.error->context().op, "reconfigure");
    EXPECT_LT(result.took, seconds(20));
  }
}

TEST(Reconfigure, OfTwoCallsThatRaceOneEndsAndTheOtherGoesOn) {
  Party party(2, seconds(60));
  const auto list = party.handles({0, 1});
  const auto results = party.together({[&] {
                                         auto result = party.call(0, 1, list);
                                         return result.error ? party.call(0, 2, list) : result;
                                       },
                                       [&] {
                                         auto result = party.call(1, 2, list);
                                         return result.error ? party.call(1, 1, list) : result;
                                       }});
  EXPECT_FALSE(results[0].error) << results[0].error->what();
  EXPECT_FALSE(results[1].error) << results[1].error->what();
  EXPECT_LT(std::max(results[0].took, results[1].took), seconds(20));
}

TEST(Reconfigure, WhoIsLeftOutIsStaleAndMayJoinAgain) {
  Party party(3);
  const auto all = party.handles({0, 1, 2}), two = party.handles({0, 1});
  const auto everybody = [&](int64_t uuid) {
    for (const auto& result : party.together({[&] { return party.call(0, uuid, all); },
                                              [&] { return party.call(1, uuid, all); },
                                              [&] { return party.call(2, uuid, all); }}))
      EXPECT_FALSE(result.error) << result.error->what();
  };
  everybody(1);
  EXPECT_FALSE(party[2].check_excluded({}));
  for (const auto& result : party.together(
           {[&] { return party.call(0, 2, two); }, [&] { return party.call(1, 2, two); }}))
    EXPECT_FALSE(result.error) << result.error->what();
  EXPECT_FALSE(party[0].check_excluded({}));
  const auto stale = party[2].check_excluded({.op = "all_reduce"});
  ASSERT_TRUE(stale);
  EXPECT_EQ(stale->code(), Errc::kStaleGeneration);
  EXPECT_EQ(stale->context().op, "all_reduce");
  everybody(3);
  for (int member = 0; member < 3; ++member) EXPECT_FALSE(party[member].check_excluded({}));
}

TEST(Reconfigure, OneAloneNeedsNobody) {
  Party party(1);
  const auto result = party.call(0, 1, party.handles({0}));
  EXPECT_FALSE(result.error);
  EXPECT_EQ(result.rank, 0);
}

TEST(Reconfigure, WhoWaitsForOneThatNamesItselfAloneLearnsIt) {
  Party party(2, seconds(60));
  EXPECT_FALSE(party.call(1, 14, party.handles({1})).error);
  const auto result = party.call(0, 14, party.handles({0, 1}));
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code(), Errc::kMismatch) << result.error->what();
  EXPECT_LT(result.took, seconds(2));
}

TEST(Reconfigure, OneThatWasAloneMeanwhileMayStillCome) {
  Party party(2, seconds(60));
  const auto both = party.handles({0, 1});
  const auto results = party.together({[&] { return party.call(0, 2, both); },
                                       [&] {
                                         EXPECT_FALSE(party.call(1, 1, party.handles({1})).error);
                                         return party.call(1, 2, both);
                                       }});
  for (const auto& result : results) EXPECT_FALSE(result.error) << result.error->what();
}

TEST(Reconfigure, AnAbortEndsWhatIsInProgressAndNothingLater) {
  Party party(3, seconds(60));
  const auto all = party.handles({0, 1, 2});
  party[0].abort();
  EXPECT_FALSE(party.call(0, 1, party.handles({0})).error) << "it came before";
  // The last one never comes.
  const auto results =
      party.together({[&] { return party.call(0, 2, all); }, [&] { return party.call(1, 2, all); },
                      [&] {
                        party.await_arrival(0);
                        party.await_arrival(1);
                        party[0].abort();
                        return Party::Result{};
                      }});
  ASSERT_TRUE(results[0].error);
  EXPECT_EQ(results[0].error->code(), Errc::kAborted) << results[0].error->what();
  EXPECT_EQ(results[0].error->context().op, "reconfigure");
  EXPECT_LT(results[0].took, seconds(20));
  ASSERT_TRUE(results[1].error) << "the others hear of it";
  EXPECT_EQ(results[1].error->code(), Errc::kPeerFailed) << results[1].error->what();
  EXPECT_EQ(results[1].error->context().peer, 0);
  EXPECT_LT(results[1].took, seconds(20));
}

TEST(Reconfigure, AnAbortBetweenConnectingAndItsEndCounts) {
  Party party(1);
  const Handles own = party.handles({0});
  const auto members =
      party[0].parse_members({.uuid = 1, .handles = own, .timeout = {}, .hints = {}}, seconds(30));
  const auto work = party[0].run(members, [&](const Rendezvous&) { party[0].abort(); });
  EXPECT_EQ(work->status(), WorkStatus::ERROR);
  EXPECT_EQ(party[0].handle(), own.front()) << "it has not joined";
}

TEST(Reconfigure, AUuidIsUsedOnceAlsoByOneThatFailed) {
  Party party(2, milliseconds(1500));  // more than a name server that loses a question takes
  const auto list = party.handles({0, 1});
  const auto late = party.call(0, 1, list);
  ASSERT_TRUE(late.error);
  EXPECT_EQ(late.error->code(), Errc::kTimeout);
  EXPECT_EQ(late.error->context().peer, 1);
  const auto again = party.call(0, 1, list);
  ASSERT_TRUE(again.error);
  EXPECT_EQ(again.error->code(), Errc::kInvalidArgument);
}

void expect_success(const std::vector<Party::Result>& results) {
  for (const auto& result : results) EXPECT_FALSE(result.error) << result.error->what();
}

TEST(MembersWithOwnStores, MeetAtThatOfTheFirst) {
  auto party = Party::with_own_stores(3);
  const std::vector<std::vector<int>> memberships{{0}, {0, 1}, {2, 0, 1}, {1, 2}};
  for (size_t i = 0; i < memberships.size(); ++i)
    expect_success(party.form(memberships[i], static_cast<int64_t>(i)));
}

TEST(MembersWithOwnStores, GoOnWithoutTheOneAtWhoseStoreTheyHadMet) {
  auto party = Party::with_own_stores(3);
  expect_success(party.form({0, 1, 2}, 1));
  party[0].close();
  expect_success(party.form({1, 2}, 2));
  for (const int member : {1, 2}) EXPECT_FALSE(party[member].check_excluded({}));
}

TEST(MembersWithOwnStores, TellTheOneAtWhoseStoreTheyHadMetThatItIsLeftOut) {
  auto party = Party::with_own_stores(3);
  expect_success(party.form({0, 1, 2}, 1));
  EXPECT_FALSE(party[0].check_excluded({}));
  expect_success(party.form({2, 1}, 2));
  const auto stale = party[0].check_excluded({});
  ASSERT_TRUE(stale);
  EXPECT_EQ(stale->code(), Errc::kStaleGeneration);
}

TEST(MembersWithOwnStores, NameTheFirstAtOnceWhenItsStoreHasEnded) {
  auto party = Party::with_own_stores(2, seconds(60));
  const auto list = party.handles({0, 1});
  party[0].close();
  const auto result = party.call(1, 1, list);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code(), Errc::kPeerFailed) << result.error->what();
  EXPECT_EQ(result.error->context().peer, 0);
  EXPECT_LT(result.took, seconds(20));
}

TEST(Reconfigure, AHandleOfAnotherStoreWithoutAddressIsRefusedAndUsesNoUuidUp) {
  Party here(2), elsewhere(1);
  auto served = Party::with_own_stores(1);
  auto list = here.handles({0, 1});
  for (const auto& other : {elsewhere.handles({0}), served.handles({0})}) {
    const auto result = here.call(0, 1, {list[0], list[1], other[0]});
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code(), Errc::kInvalidArgument) << result.error->what();
    EXPECT_NE(result.error->why().find("has no address"), std::string::npos);
  }
  expect_success(here.form({0, 1}, 1));
}

TEST(Reconfigure, AStoreThatLoopbackAloneReachesIsRefusedForMembersOnOtherHosts) {
  const Variable rank("TORCHCOMM_RANK", "0"), size("TORCHCOMM_SIZE", "1");
  Reconfiguration self("gloo", "far", with_store(nullptr));
  auto first = parse_init_handle(self.handle(), "gloo");
  first.identity += 1;
  first.loopback += 1;
  first.host = "127.0.0.1";
  try {
    self.parse_members(
        {.uuid = 1, .handles = Handles{first.to_text(), self.handle()}, .timeout = {}, .hints = {}},
        seconds(30));
    ADD_FAILURE() << "accepted";
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInvalidArgument);
    EXPECT_NE(e.why().find("no address but loopback"), std::string::npos) << e.why();
  }
}

}  // namespace
}  // namespace torch::comms
