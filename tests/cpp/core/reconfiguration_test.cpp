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

class MemberGroup {
 public:
  explicit MemberGroup(int size, milliseconds timeout = seconds(30))
      : MemberGroup(size, timeout, c10::make_intrusive<c10d::HashStore>()) {}
  // Without a store each member serves one.
  static MemberGroup with_own_stores(int size, milliseconds timeout = seconds(30)) {
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
               [&](const Rendezvous& joined) {
                 result.rank = joined.rank;
                 result.identity = joined.identity;
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
  MemberGroup(int size, milliseconds timeout, StorePtr store)
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
  MemberGroup group(3);
  const auto list = group.handles({2, 0, 1});
  const auto results = group.together({[&] { return group.call(0, 1, list); },
                                       [&] { return group.call(1, 1, list); },
                                       [&] { return group.call(2, 1, list); }});
  EXPECT_EQ(results[0].rank, 1);
  EXPECT_EQ(results[1].rank, 2);
  EXPECT_EQ(results[2].rank, 0);
}

TEST(Reconfigure, ThoseThatMeetShareANumberThatOthersDoNotHave) {
  MemberGroup group(4);
  std::set<uint64_t> identities;
  for (const int64_t uuid : {1, 2})
    for (const auto& pair : {std::vector{0, 1}, {2, 3}}) {
      const auto list = group.handles(pair);
      const auto results = group.together({[&] { return group.call(pair[0], uuid, list); },
                                           [&] { return group.call(pair[1], uuid, list); }});
      EXPECT_EQ(results[0].identity, results[1].identity);
      EXPECT_TRUE(identities.insert(results[0].identity).second);
    }
}

TEST(Reconfigure, ThoseThatDisagreeLearnItLongBeforeTheirLimit) {
  MemberGroup group(3, seconds(60));
  const auto all = group.handles({0, 1, 2}), two = group.handles({0, 1});
  const auto results =
      group.together({[&] { return group.call(0, 1, all); }, [&] { return group.call(1, 1, two); },
                      [&] { return group.call(2, 1, all); }});
  for (const auto& result : results) {
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code(), Errc::kMismatch) << result.error->what();
    EXPECT_EQ(result.error->context().op, "reconfigure");
    EXPECT_LT(result.took, seconds(20));
  }
}

TEST(Reconfigure, OfTwoCallsThatRaceOneEndsAndTheOtherGoesOn) {
  MemberGroup group(2, seconds(60));
  const auto list = group.handles({0, 1});
  const auto results = group.together({[&] {
                                         auto result = group.call(0, 1, list);
                                         return result.error ? group.call(0, 2, list) : result;
                                       },
                                       [&] {
                                         auto result = group.call(1, 2, list);
                                         return result.error ? group.call(1, 1, list) : result;
                                       }});
  EXPECT_FALSE(results[0].error) << results[0].error->what();
  EXPECT_FALSE(results[1].error) << results[1].error->what();
  EXPECT_LT(std::max(results[0].took, results[1].took), seconds(20));
}

TEST(Reconfigure, WhoIsLeftOutIsStaleAndMayJoinAgain) {
  MemberGroup group(3);
  const auto all = group.handles({0, 1, 2}), two = group.handles({0, 1});
  const auto reconfigure_all = [&](int64_t uuid) {
    for (const auto& result : group.together({[&] { return group.call(0, uuid, all); },
                                              [&] { return group.call(1, uuid, all); },
                                              [&] { return group.call(2, uuid, all); }}))
      EXPECT_FALSE(result.error) << result.error->what();
  };
  reconfigure_all(1);
  EXPECT_FALSE(group[2].check_excluded({}));
  for (const auto& result : group.together(
           {[&] { return group.call(0, 2, two); }, [&] { return group.call(1, 2, two); }}))
    EXPECT_FALSE(result.error) << result.error->what();
  EXPECT_FALSE(group[0].check_excluded({}));
  const auto stale = group[2].check_excluded({.op = "all_reduce"});
  ASSERT_TRUE(stale);
  EXPECT_EQ(stale->code(), Errc::kStaleGeneration);
  EXPECT_EQ(stale->context().op, "all_reduce");
  reconfigure_all(3);
  for (int member = 0; member < 3; ++member) EXPECT_FALSE(group[member].check_excluded({}));
}

TEST(Reconfigure, OneAloneNeedsNobody) {
  MemberGroup group(1);
  const auto result = group.call(0, 1, group.handles({0}));
  EXPECT_FALSE(result.error);
  EXPECT_EQ(result.rank, 0);
}

TEST(Reconfigure, WhoWaitsForOneThatNamesItselfAloneLearnsIt) {
  MemberGroup group(2, seconds(60));
  EXPECT_FALSE(group.call(1, 14, group.handles({1})).error);
  const auto result = group.call(0, 14, group.handles({0, 1}));
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code(), Errc::kMismatch) << result.error->what();
  EXPECT_LT(result.took, seconds(2));
}

TEST(Reconfigure, OneThatWasAloneMeanwhileMayStillCome) {
  MemberGroup group(2, seconds(60));
  const auto both = group.handles({0, 1});
  const auto results = group.together({[&] { return group.call(0, 2, both); },
                                       [&] {
                                         EXPECT_FALSE(group.call(1, 1, group.handles({1})).error);
                                         return group.call(1, 2, both);
                                       }});
  for (const auto& result : results) EXPECT_FALSE(result.error) << result.error->what();
}

TEST(Reconfigure, AnAbortEndsWhatIsInProgressAndNothingLater) {
  MemberGroup group(3, seconds(60));
  const auto all = group.handles({0, 1, 2});
  group[0].abort();
  EXPECT_FALSE(group.call(0, 1, group.handles({0})).error) << "it came before";
  // The last one never comes.
  const auto results =
      group.together({[&] { return group.call(0, 2, all); }, [&] { return group.call(1, 2, all); },
                      [&] {
                        group.await_arrival(0);
                        group.await_arrival(1);
                        group[0].abort();
                        return MemberGroup::Result{};
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
  MemberGroup group(1);
  const Handles own = group.handles({0});
  const auto members =
      group[0].parse_members({.uuid = 1, .handles = own, .timeout = {}, .hints = {}}, seconds(30));
  const auto work = group[0].run(members, [&](const Rendezvous&) { group[0].abort(); });
  EXPECT_EQ(work->status(), WorkStatus::ERROR);
  EXPECT_EQ(group[0].handle(), own.front()) << "it has not joined";
}

TEST(Reconfigure, AUuidIsUsedOnceAlsoByOneThatFailed) {
  MemberGroup group(2, milliseconds(1500));  // more than a name server that loses a question takes
  const auto list = group.handles({0, 1});
  const auto late = group.call(0, 1, list);
  ASSERT_TRUE(late.error);
  EXPECT_EQ(late.error->code(), Errc::kTimeout);
  EXPECT_EQ(late.error->context().peer, 1);
  const auto again = group.call(0, 1, list);
  ASSERT_TRUE(again.error);
  EXPECT_EQ(again.error->code(), Errc::kInvalidArgument);
}

void expect_success(const std::vector<MemberGroup::Result>& results) {
  for (const auto& result : results) EXPECT_FALSE(result.error) << result.error->what();
}

TEST(MembersWithOwnStores, MeetAtThatOfTheFirst) {
  auto group = MemberGroup::with_own_stores(3);
  const std::vector<std::vector<int>> memberships{{0}, {0, 1}, {2, 0, 1}, {1, 2}};
  for (size_t i = 0; i < memberships.size(); ++i)
    expect_success(group.form(memberships[i], static_cast<int64_t>(i)));
}

TEST(MembersWithOwnStores, GoOnWithoutTheOneAtWhoseStoreTheyHadMet) {
  auto group = MemberGroup::with_own_stores(3);
  expect_success(group.form({0, 1, 2}, 1));
  group[0].close();
  expect_success(group.form({1, 2}, 2));
  for (const int member : {1, 2}) EXPECT_FALSE(group[member].check_excluded({}));
}

TEST(MembersWithOwnStores, TellTheOneAtWhoseStoreTheyHadMetThatItIsLeftOut) {
  auto group = MemberGroup::with_own_stores(3);
  expect_success(group.form({0, 1, 2}, 1));
  EXPECT_FALSE(group[0].check_excluded({}));
  expect_success(group.form({2, 1}, 2));
  const auto stale = group[0].check_excluded({});
  ASSERT_TRUE(stale);
  EXPECT_EQ(stale->code(), Errc::kStaleGeneration);
}

TEST(MembersWithOwnStores, NameTheFirstAtOnceWhenItsStoreHasEnded) {
  auto group = MemberGroup::with_own_stores(2, seconds(60));
  const auto list = group.handles({0, 1});
  group[0].close();
  const auto result = group.call(1, 1, list);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code(), Errc::kPeerFailed) << result.error->what();
  EXPECT_EQ(result.error->context().peer, 0);
  EXPECT_LT(result.took, seconds(20));
}

TEST(Reconfigure, AHandleOfAnotherStoreWithoutAddressIsRefusedAndUsesNoUuidUp) {
  MemberGroup here(2), elsewhere(1);
  auto served = MemberGroup::with_own_stores(1);
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
