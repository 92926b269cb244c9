#include "ctran/kernels/protocol/flags.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "ctran/kernels/host/call_fingerprint.hpp"
#include "ctran/kernels/protocol/layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr uint64_t kFingerprint = 0x8123456789ab;

TEST(FlagsTest, CountersAreComparedAcrossTheirEnd) {
  EXPECT_TRUE(has_reached(5, 5));
  EXPECT_TRUE(has_reached(6, 5));
  EXPECT_FALSE(has_reached(4, 5));
  EXPECT_TRUE(has_reached(2, ~uint64_t{0}));
  EXPECT_FALSE(has_reached(~uint64_t{0}, 2));
  const uint64_t last = (uint64_t{1} << 44) - 1;
  EXPECT_TRUE(has_reached(tag_of(last + 1, 0), tag_of(last, 7)));
  EXPECT_FALSE(has_reached(tag_of(last, 7), tag_of(last + 1, 0)));
}

TEST(FlagsTest, WhatHasBegunIsKnownAcrossTheEndOfItsNumber) {
  for (const uint64_t launch : {uint64_t{3}, uint64_t{0xffff}, uint64_t{0x10000}, uint64_t{0x18000},
                                uint64_t{0x2ffff}, ~uint64_t{0}}) {
    const uint64_t word = arrival_word(launch, kFingerprint);
    EXPECT_EQ(fingerprint_in(word), kFingerprint);
    for (int ahead = -2; ahead <= 2; ++ahead)
      EXPECT_EQ(has_arrived(word, launch + static_cast<uint64_t>(ahead)), ahead <= 0) << ahead;
    EXPECT_FALSE(has_call_mismatch(word, arrival_word(launch, kFingerprint)));
    for (int bit = 0; bit < kFingerprintBits; ++bit) {
      const uint64_t other = kFingerprint ^ uint64_t{1} << bit;
      EXPECT_TRUE(has_call_mismatch(word, arrival_word(launch, other))) << bit;
      EXPECT_FALSE(has_call_mismatch(word, arrival_word(launch + 1, other))) << "of another launch";
    }
  }
  EXPECT_TRUE(has_arrived(0, 0)) << "a new workspace";
  EXPECT_FALSE(has_arrived(0, 1));
}

// A rank that has skipped a launch, or called two in another order, never agrees again.
TEST(FlagsTest, OneOtherCallChangesAllPrintsAfterIt) {
  uint64_t one = 0, other = 0;
  one = chain_fingerprint(chain_fingerprint(one, 0xa1), 0xb2);
  other = chain_fingerprint(chain_fingerprint(other, 0xb2), 0xa1);
  for (uint64_t call = 1; call < 100000; ++call) {
    ASSERT_NE(one, other) << call;
    ASSERT_EQ(one >> kFingerprintBits, 0u);
    one = chain_fingerprint(one, call % 3), other = chain_fingerprint(other, call % 3);
  }
}

// Among the lines that a warp moves at once, and the words of a vector of LL, is all of the print.
TEST(FlagsTest, EveryBitOfThePrintIsInSomeFlag) {
  const uint64_t launch = 77;
  for (int bit = 0; bit < kFingerprintBits; ++bit) {
    const uint64_t other = kFingerprint ^ uint64_t{1} << bit;
    int lines = 0, words = 0;
    for (int part = 0; part < kLL128Parts; ++part)
      lines += ll128_flag(launch, kFingerprint, part) != ll128_flag(launch, other, part) ? 1 : 0;
    for (int part = 0; part < kLLParts; ++part)
      words += ll_flag(launch, kFingerprint, part) != ll_flag(launch, other, part) ? 1 : 0;
    EXPECT_EQ(lines, 1) << bit;
    EXPECT_EQ(words, 1) << bit;
  }
}

TEST(FlagsTest, StepsLaunchesAndPrintsOfALineHaveBitsOfTheirOwn) {
  const uint64_t most = kMostSteps - 1, last = (uint64_t{1} << kLL128LaunchBits) - 1;
  const uint64_t flag = ll128_flag(last, kFingerprint, 0) | most;
  EXPECT_EQ(flag & most, most);
  EXPECT_EQ(launch_in(flag), last);
  EXPECT_EQ(flag >> (kStepBits + kLL128LaunchBits), kFingerprint & 0xffff);
  EXPECT_EQ(ll128_flag(last + 1, 0, 0), 0u) << "it comes round";
  EXPECT_EQ(ll128_flag(5, kFingerprint, 3), ll128_flag(5, kFingerprint, 0))
      << "a warp has four lines";
}

TEST(FlagsTest, MemoryThatComesLateHasTheFlagOfNoStepThatIsTheFirstInItsSlot) {
  uint64_t filled = 0;
  std::memset(&filled, kLateFill, sizeof filled);
  constexpr uint64_t kLast = (uint64_t{1} << kLL128LaunchBits) - 1,
                     kAll = (uint64_t{1} << kFingerprintBits) - 1;
  for (const uint64_t launch : {uint64_t{0}, uint64_t{1}, kLast / 2, kLast, kLast + 1})
    for (const uint64_t print : {uint64_t{0}, kFingerprint, kAll})
      for (uint64_t step = 0; step < kRing; ++step)
        EXPECT_NE(ll128_flag(launch, print, 0) | step, filled) << launch << ", step " << step;
}

// What any launch leaves is cleared before a launch of the same number could take it for its own,
// and what is cleared is no flag of a launch before the next time.
TEST(FlagsTest, FlagsAreClearedBeforeTheyComeRound) {
  for (const int bits : {kLLLaunchBits, kLL128LaunchBits}) {
    const uint64_t round = uint64_t{1} << bits;
    for (const uint64_t launch : {uint64_t{1}, uint64_t{2}, round / 2 - 1, round / 2, round / 2 + 1,
                                  round - 1, round, round + 1, 3 * round - 2}) {
      const uint64_t again = launch + round;
      bool cleared = false;
      // The clearing launches lie around the multiples of half a round.
      for (uint64_t at = launch / (round / 2) * (round / 2); at <= again; at += round / 2)
        for (const uint64_t clearing : {at, at + 1})
          if (clearing > launch && clearing + 1 <= again &&
              clears_next_generation(clearing, bits) && (clearing + 1) % 2 == launch % 2)
            cleared = true;
      EXPECT_TRUE(cleared) << launch << " of " << bits << " bits";
    }
    for (const uint64_t clearing : {round / 2, round / 2 + 1, round, round + 1}) {
      const uint64_t next = clearing + round / 2 + 2;
      EXPECT_GT((past_launch(clearing) - clearing) % round, next - clearing);
    }
    EXPECT_FALSE(clears_next_generation(2, bits));
  }
  constexpr uint64_t kRound = uint64_t{1} << kLLLaunchBits;
  EXPECT_EQ(ll_flag(kRound + 5, kFingerprint, 1), ll_flag(5, kFingerprint, 1));
  EXPECT_NE(ll_flag(past_launch(1), 0, 0), ll_flag(2, 0, 0));
}

KernelCall call_of(Collective collective) {
  KernelCall call{};
  call.collective = collective;
  call.dtype = Dtype::kFloat32;
  call.op = ReduceOpCode::kSum;
  call.count = 96;
  return call;
}

TEST(PrintTest, EveryPartThatRanksHaveToSayAlikeCounts) {
  std::set<uint64_t> fingerprints;
  const auto add = [&](const KernelCall& call, uint64_t how = 0) {
    EXPECT_TRUE(fingerprints.insert(fingerprint_of(call, how)).second) << fingerprints.size();
  };
  for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c)
    add(call_of(static_cast<Collective>(c)));
  auto call = call_of(Collective::kAllReduce);
  add(call, 7);
  call.count = 64;
  add(call);
  call.dtype = Dtype::kInt32;
  add(call);
  call.op = ReduceOpCode::kMax;
  add(call);
  call = call_of(Collective::kBroadcast);
  call.root = 1;
  add(call);
  WindowCollectiveCall window_call{};
  window_call.call = call;
  EXPECT_TRUE(fingerprints.insert(fingerprint_of(window_call)).second);
  QuantizedReduceScatter quantized{};
  EXPECT_TRUE(fingerprints.insert(fingerprint_of(quantized)).second);
  quantized.is_average = true;
  EXPECT_TRUE(fingerprints.insert(fingerprint_of(quantized)).second);
}

TEST(PrintTest, WhatARankHasToItselfDoesNotCount) {
  auto call = call_of(Collective::kAllReduce), other = call;
  other.input = &call;
  other.output = &other;
  other.factor = &call;
  other.factor_value = 3;
  other.timeout_ns = 5;
  other.root = 1;  // of a collective without one
  EXPECT_EQ(fingerprint_of(call), fingerprint_of(other));
  call = other = call_of(Collective::kAllGather);
  other.dtype = Dtype::kUInt8, other.count = call.count * 4;
  EXPECT_EQ(fingerprint_of(call), fingerprint_of(other)) << "bytes that are only moved";
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
