#include <torchcomms/base/error.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/op_order.hpp"

namespace torch::comms {
namespace {

TEST(CommError, WritesOnlyWhatIsKnown) {
  EXPECT_STREQ(CommError(Errc::kTimeout, "too late").what(), "too late");
  EXPECT_STREQ(CommError(Errc::kTimeout, "too late", {.op = "barrier"}).what(),
               "barrier: too late");
  EXPECT_STREQ(CommError(Errc::kTimeout, "too late", {.comm = "train", .rank = 0}).what(),
               "on 'train' (rank 0): too late");
  EXPECT_STREQ(CommError(Errc::kPeerFailed, "gone",
                         {.op = "send", .comm = "train", .rank = 0, .peer = 3, .seq = 17})
                   .what(),
               "send on 'train' (rank 0, peer 3, operation 17): gone");
}

TEST(CommError, CountsCallsAndMessagesApart) {
  base::OpOrder order;
  const auto text = [](uint64_t number) {
    return std::string(CommError(Errc::kTimeout, "late", {.rank = 0, .seq = number}).what());
  };
  EXPECT_EQ(text(order.next_collective()), "(rank 0, operation 1): late");
  EXPECT_EQ(text(order.next_split()), "(rank 0, call 1): late");
  EXPECT_EQ(text(order.next_batch()), "(rank 0, call 1): late");
  EXPECT_EQ(text(order.next_message(0, 3, 4)), "(rank 0, message 1): late");
  EXPECT_EQ(text(order.next_message(0, 3, 4)), "(rank 0, message 2): late");
  EXPECT_EQ(text(order.next_message(3, 0, 4)), "(rank 0, message 1): late");
  EXPECT_EQ(text(order.next_message(-1, 0, 4)), "(rank 0, message 1): late") << "from any rank";
}

TEST(CommError, ShowsTheBeginningOfALongName) {
  const std::string name(1000, 'n');
  const CommError error(Errc::kTimeout, "too late", {.comm = name});
  EXPECT_EQ(error.what(), "on '" + std::string(100, 'n') + "...': too late");
  EXPECT_EQ(error.context().comm, name);
  std::string umlauts = "n";
  for (int i = 0; i < 100; ++i) umlauts += "\u00fc";
  const std::string message = CommError(Errc::kTimeout, "too late", {.comm = umlauts}).what();
  EXPECT_TRUE(message.starts_with("on '" + umlauts.substr(0, 99) + "...'")) << message;
}

TEST(CommError, KeepsItsParts) {
  const CommError error(Errc::kMismatch, "why",
                        {.op = "op", .comm = "c", .rank = 1, .peer = 2, .seq = 3});
  EXPECT_EQ(error.code(), Errc::kMismatch);
  EXPECT_EQ(error.why(), "why");
  EXPECT_EQ(error.context().op, "op");
  EXPECT_EQ(error.context().comm, "c");
  EXPECT_EQ(error.context().rank, 1);
  EXPECT_EQ(error.context().peer, 2);
  EXPECT_EQ(error.context().seq, 3u);
  EXPECT_NE(dynamic_cast<const std::runtime_error*>(&error), nullptr);
}

TEST(CommError, KnowsThoseAtFaultAndTheLimit) {
  using std::chrono::milliseconds;
  const CommError several(Errc::kTimeout, "late", {.culprits = {1, 3}, .limit = milliseconds(300)});
  EXPECT_EQ(several.context().culprits, (std::vector{1, 3}));
  EXPECT_EQ(several.context().peer, -1);
  EXPECT_EQ(several.context().limit, milliseconds(300));
  const CommError one(Errc::kTimeout, "late", {.rank = 0, .culprits = {2}});
  EXPECT_EQ(one.context().peer, 2);
  EXPECT_STREQ(one.what(), "(rank 0, peer 2): late");
  EXPECT_EQ(CommError(Errc::kPeerFailed, "gone", {.peer = 3}).context().culprits, std::vector{3});
  const CommError gone(Errc::kPeerFailed, "gone", {.culprits = {3, 1}});
  EXPECT_EQ(gone.context().peer, 3);  // the first one
  // Whoever calls wrongly is at fault, not the rank that the call is about.
  const CommError wrong(Errc::kInvalidArgument, "to itself", {.peer = 3});
  EXPECT_TRUE(wrong.context().culprits.empty());
  EXPECT_EQ(wrong.context().peer, 3);
}

TEST(CommError, ThoseAtFaultAreTakenFromAnotherPlace) {
  const Context here{.op = "split", .rank = 1};
  const auto blamed = here.blaming({.op = "all_reduce", .rank = 0, .peer = 2, .culprits = {2}});
  EXPECT_EQ(blamed.op, "split");
  EXPECT_EQ(blamed.rank, 1);
  EXPECT_EQ(blamed.peer, 2);
  EXPECT_EQ(blamed.culprits, std::vector{2});
}

TEST(CommError, OnlyInternalErrorsNameASourceLine) {
  EXPECT_NE(std::string(CommError(Errc::kInternal, "bug").what()).find("error_test.cpp:"),
            std::string::npos);
  EXPECT_EQ(std::string(CommError(Errc::kSystem, "disk full").what()).find("error_test.cpp"),
            std::string::npos);
}

TEST(ErrcTable, HasEveryCodeOnceInOrder) {
  size_t count = 0;
  const ErrcRow* rows = errc_rows(&count);
  ASSERT_EQ(count, static_cast<size_t>(Errc::kInternal) + 1);
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(static_cast<size_t>(rows[i].code), i) << rows[i].name;
    EXPECT_STRNE(rows[i].doc, "") << rows[i].name;
    const std::string name = rows[i].name;
    EXPECT_TRUE(name == "CommError" || names.insert(name).second) << name;
  }
}

TEST(Check, ThrowsOnlyWhenBrokenAndNamesTheCondition) {
  const int ranks = 2;
  EXPECT_NO_THROW(TC_CHECK(ranks == 2));
  try {
    TC_CHECK(ranks == 3);
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInternal);
    EXPECT_NE(std::string(e.what()).find("ranks == 3"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("error_test.cpp:"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace torch::comms
