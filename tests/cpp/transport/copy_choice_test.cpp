#include "transport/copy_choice.hpp"

#include <gtest/gtest.h>

#include "transport/sizes.hpp"

namespace torch::comms::transport {
namespace {

using Way = CopyChoice::Way;
using std::chrono::microseconds;

constexpr uint64_t kBytes = 16u << 20, kFirst = 1u << 20;

// So many messages that take so long, by way; returns how many of them were fetched.
int move(CopyChoice& choice, int messages, microseconds fetched, microseconds through,
         uint64_t bytes = kBytes) {
  int fetches = 0;
  for (int i = 0; i < messages; ++i) {
    const Way way = choice.next(bytes);
    fetches += way == Way::kFetch ? 1 : 0;
    choice.took(way, bytes, way == Way::kFetch ? fetched : through);
  }
  return fetches;
}

TEST(CopyChoice, BeginsWithWhatWasFasterWhereItWasMeasured) {
  CopyChoice choice(kFirst, kMostFetched);
  EXPECT_EQ(choice.usual(kMostFetched), Way::kFetch);
  EXPECT_EQ(choice.usual(kMostFetched + 1), Way::kChannel);
}

TEST(CopyChoice, ChangesWhereTheOtherWayIsFaster) {
  CopyChoice choice(kFirst, kMostFetched);
  EXPECT_GE(move(choice, 100, microseconds(3000), microseconds(6000)), 75);
  CopyChoice small(kFirst, kMostFetched);
  EXPECT_LE(move(small, 100, microseconds(200), microseconds(100), 2u << 20), 25);
}

TEST(CopyChoice, TriesTheSlowerWayMoreAndMoreSeldom) {
  CopyChoice choice(kFirst, kMostFetched);
  const int early = move(choice, 100, microseconds(6000), microseconds(3000));
  EXPECT_GT(early, 0);
  move(choice, 3000, microseconds(6000), microseconds(3000));
  EXPECT_LE(move(choice, 1000, microseconds(6000), microseconds(3000)), 15);
}

TEST(CopyChoice, LooksAgainSoonWhenTheUsualWayHasBecomeSlow) {
  CopyChoice choice(kFirst, kMostFetched);
  move(choice, 5000, microseconds(6000), microseconds(3000));
  EXPECT_GE(move(choice, 100, microseconds(3000), microseconds(9000)), 75);
}

TEST(CopyChoice, AnInterruptionChangesNothing) {
  CopyChoice choice(kFirst, kMostFetched);
  move(choice, 5000, microseconds(6000), microseconds(3000));
  choice.took(Way::kChannel, kBytes, microseconds(1'000'000));
  EXPECT_LE(move(choice, 100, microseconds(6000), microseconds(3000)), 3);
  EXPECT_EQ(choice.next(kBytes), Way::kChannel);
}

TEST(CopyChoice, AWayThatIsRefusedIsTriedLessAndLess) {
  CopyChoice choice(kFirst, kMostFetched);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const Way way = choice.next(kBytes);
    refused += way == Way::kFetch ? 1 : 0;
    choice.took(way, kBytes,
                way == Way::kFetch ? std::chrono::nanoseconds::max() : microseconds(3000));
  }
  EXPECT_LE(refused, 90);
}

TEST(CopyChoice, KnowsSizesApart) {
  CopyChoice choice(kFirst, kMostFetched);
  move(choice, 100, microseconds(3000), microseconds(6000));
  EXPECT_EQ(choice.next(64u << 20), Way::kChannel);
  EXPECT_EQ(choice.next(uint64_t{1} << 40), Way::kChannel);
}

}  // namespace
}  // namespace torch::comms::transport
