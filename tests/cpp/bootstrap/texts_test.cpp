#include <gtest/gtest.h>

#include <numeric>

#include "bootstrap/ranks.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

TEST(NameRanks, GroupsNeighbours) {
  EXPECT_EQ(format_ranks({3}, 8), "rank 3 of 8");
  EXPECT_EQ(format_ranks({1, 2}, 8), "ranks 1, 2 of 8");
  EXPECT_EQ(format_ranks({1, 3, 4, 5}, 8), "ranks 1, 3-5 of 8");
  EXPECT_EQ(format_ranks({0, 1, 2, 6, 7}, 8), "ranks 0-2, 6, 7 of 8");
  std::vector<int> all(100'000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(format_ranks(all, 100'000), "ranks 0-99999 of 100000");
}

TEST(NameRanks, CutsLongLists) {
  std::vector<int> odd;
  for (int rank = 1; rank < 101; rank += 2) odd.push_back(rank);
  const auto text = format_ranks(odd, 101);
  EXPECT_NE(text.find("1, 3, 5"), std::string::npos) << text;
  EXPECT_NE(text.find("39 and 30 more of 101"), std::string::npos) << text;
}

TEST(Limit, IsWrittenInSeconds) {
  EXPECT_EQ(format_duration(milliseconds(600'000)), "600 s");
  EXPECT_EQ(format_duration(milliseconds(250)), "0.25 s");
  EXPECT_EQ(format_duration(milliseconds(1)), "0.001 s");
}

TEST(Deadline, CountsFromWhereItIsTold) {
  const auto now = Deadline::Clock::now();
  EXPECT_TRUE(Deadline(milliseconds(100), now - milliseconds(100)).has_passed());
  EXPECT_GT(Deadline(milliseconds(60'000), now).remaining(), milliseconds(50'000));
  EXPECT_EQ(Deadline(milliseconds(-5)).remaining(), milliseconds(0));
}

TEST(Deadline, ForeverDoesNotOverflow) {
  EXPECT_GT(Deadline(milliseconds::max()).remaining(), std::chrono::hours(24 * 365));
  EXPECT_TRUE(Deadline(milliseconds::min()).has_passed());
}

}  // namespace
}  // namespace torch::comms::bootstrap
