#include "core/comm/error_context.hpp"

#include <gtest/gtest.h>

namespace torch::comms {
namespace {

// With the context of an operation of rank 1 that waited for rank 3.
CommError thrown_from(const Context& there) {
  try {
    with_context(Context{.op = "split", .comm = "x", .rank = 1, .peer = 3},
                 [&] { throw CommError(Errc::kTimeout, "late", there); });
  } catch (const CommError& e) {
    return e;
  }
  return {Errc::kInternal, "nothing was thrown"};
}

TEST(WithContext, GivesTheOperationAndKeepsWhoIsToBlame) {
  const auto one = thrown_from({.peer = 2}).context();
  EXPECT_EQ(one.op, "split");
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.peer, 2);
  const auto several = thrown_from({.culprits = {0, 2}}).context();
  EXPECT_EQ(several.op, "split");
  EXPECT_EQ(several.culprits, (std::vector{0, 2}));
}

TEST(WithContext, AnErrorThatBlamesNobodyGetsTheWholeContext) {
  const auto context = thrown_from({}).context();
  EXPECT_EQ(context.op, "split");
  EXPECT_EQ(context.peer, 3);
}

TEST(WithContext, AnErrorOfAnOperationStaysAsItIs) {
  const auto context = thrown_from({.op = "barrier", .rank = 0}).context();
  EXPECT_EQ(context.op, "barrier");
  EXPECT_EQ(context.rank, 0);
  EXPECT_EQ(context.peer, -1);
}

}  // namespace
}  // namespace torch::comms
