#include "transport/protocol/copy_path_tuner.hpp"

#include <gtest/gtest.h>

#include "transport/protocol/protocol_thresholds.hpp"

namespace torch::comms::transport {
namespace {

using Way = CopyPathTuner::CopyPath;
using std::chrono::microseconds;

constexpr uint64_t kBytes = 16u << 20, kFirst = 1u << 20;

// So many messages that take so long, by way; returns how many of them were fetched.
int move(CopyPathTuner& choice, int messages, microseconds fetched, microseconds through,
         uint64_t bytes = kBytes) {
  int fetches = 0;
  for (int i = 0; i < messages; ++i) {
    const Way way = choice.choose(bytes);
    fetches += way == Way::kRemoteRead ? 1 : 0;
    choice.add_sample(way, bytes, way == Way::kRemoteRead ? fetched : through);
  }
  return fetches;
}

TEST(CopyChoice, BeginsWithWhatWasFasterWhereItWasMeasured) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  EXPECT_EQ(choice.default_path(kMaxInitialRemoteReadBytes), Way::kRemoteRead);
  EXPECT_EQ(choice.default_path(kMaxInitialRemoteReadBytes + 1), Way::kCopyInOut);
}

TEST(CopyChoice, ChangesWhereTheOtherWayIsFaster) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  EXPECT_GE(move(choice, 100, microseconds(3000), microseconds(6000)), 75);
  CopyPathTuner small(kFirst, kMaxInitialRemoteReadBytes);
  EXPECT_LE(move(small, 100, microseconds(200), microseconds(100), 2u << 20), 25);
}

TEST(CopyChoice, TriesTheSlowerWayMoreAndMoreSeldom) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  const int early = move(choice, 100, microseconds(6000), microseconds(3000));
  EXPECT_GT(early, 0);
  move(choice, 3000, microseconds(6000), microseconds(3000));
  EXPECT_LE(move(choice, 1000, microseconds(6000), microseconds(3000)), 15);
}

TEST(CopyChoice, LooksAgainSoonWhenTheUsualWayHasBecomeSlow) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  move(choice, 5000, microseconds(6000), microseconds(3000));
  EXPECT_GE(move(choice, 100, microseconds(3000), microseconds(9000)), 75);
}

TEST(CopyChoice, AnInterruptionChangesNothing) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  move(choice, 5000, microseconds(6000), microseconds(3000));
  choice.add_sample(Way::kCopyInOut, kBytes, microseconds(1'000'000));
  EXPECT_LE(move(choice, 100, microseconds(6000), microseconds(3000)), 3);
  EXPECT_EQ(choice.choose(kBytes), Way::kCopyInOut);
}

TEST(CopyChoice, AWayThatIsRefusedIsTriedLessAndLess) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const Way way = choice.choose(kBytes);
    refused += way == Way::kRemoteRead ? 1 : 0;
    choice.add_sample(
        way, kBytes,
        way == Way::kRemoteRead ? std::chrono::nanoseconds::max() : microseconds(3000));
  }
  EXPECT_LE(refused, 90);
}

TEST(CopyChoice, KnowsSizesApart) {
  CopyPathTuner choice(kFirst, kMaxInitialRemoteReadBytes);
  move(choice, 100, microseconds(3000), microseconds(6000));
  EXPECT_EQ(choice.choose(64u << 20), Way::kCopyInOut);
  EXPECT_EQ(choice.choose(uint64_t{1} << 40), Way::kCopyInOut);
}

}  // namespace
}  // namespace torch::comms::transport
