#include "transport/protocol/copy_path_tuner.hpp"

#include <gtest/gtest.h>

#include "transport/protocol/protocol_thresholds.hpp"

namespace torch::comms::transport {
namespace {

using Path = CopyPathTuner::CopyPath;
using std::chrono::microseconds;

constexpr uint64_t kBytes = 16u << 20, kFirst = 1u << 20;

// So many messages that take so long, by way; returns how many of them were fetched.
int move(CopyPathTuner& tuner, int messages, microseconds remote_read, microseconds copy_in_out,
         uint64_t bytes = kBytes) {
  int remote_reads = 0;
  for (int i = 0; i < messages; ++i) {
    const Path path = tuner.choose(bytes);
    remote_reads += path == Path::kRemoteRead ? 1 : 0;
    tuner.add_sample(path, bytes, path == Path::kRemoteRead ? remote_read : copy_in_out);
  }
  return remote_reads;
}

TEST(CopyChoice, BeginsWithWhatWasFasterWhereItWasMeasured) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  EXPECT_EQ(tuner.default_path(kMaxInitialRemoteReadBytes), Path::kRemoteRead);
  EXPECT_EQ(tuner.default_path(kMaxInitialRemoteReadBytes + 1), Path::kCopyInOut);
}

TEST(CopyChoice, ChangesWhereTheOtherWayIsFaster) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  EXPECT_GE(move(tuner, 100, microseconds(3000), microseconds(6000)), 75);
  CopyPathTuner small(kFirst, kMaxInitialRemoteReadBytes);
  EXPECT_LE(move(small, 100, microseconds(200), microseconds(100), 2u << 20), 25);
}

TEST(CopyChoice, TriesTheSlowerWayMoreAndMoreSeldom) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  const int early = move(tuner, 100, microseconds(6000), microseconds(3000));
  EXPECT_GT(early, 0);
  move(tuner, 3000, microseconds(6000), microseconds(3000));
  EXPECT_LE(move(tuner, 1000, microseconds(6000), microseconds(3000)), 15);
}

TEST(CopyChoice, LooksAgainSoonWhenTheUsualWayHasBecomeSlow) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  move(tuner, 5000, microseconds(6000), microseconds(3000));
  EXPECT_GE(move(tuner, 100, microseconds(3000), microseconds(9000)), 75);
}

TEST(CopyChoice, AnInterruptionChangesNothing) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  move(tuner, 5000, microseconds(6000), microseconds(3000));
  tuner.add_sample(Path::kCopyInOut, kBytes, microseconds(1'000'000));
  EXPECT_LE(move(tuner, 100, microseconds(6000), microseconds(3000)), 3);
  EXPECT_EQ(tuner.choose(kBytes), Path::kCopyInOut);
}

TEST(CopyChoice, AWayThatIsRefusedIsTriedLessAndLess) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const Path path = tuner.choose(kBytes);
    refused += path == Path::kRemoteRead ? 1 : 0;
    tuner.add_sample(
        path, kBytes,
        path == Path::kRemoteRead ? std::chrono::nanoseconds::max() : microseconds(3000));
  }
  EXPECT_LE(refused, 90);
}

TEST(CopyChoice, KnowsSizesApart) {
  CopyPathTuner tuner(kFirst, kMaxInitialRemoteReadBytes);
  move(tuner, 100, microseconds(3000), microseconds(6000));
  EXPECT_EQ(tuner.choose(64u << 20), Path::kCopyInOut);
  EXPECT_EQ(tuner.choose(uint64_t{1} << 40), Path::kCopyInOut);
}

}  // namespace
}  // namespace torch::comms::transport
