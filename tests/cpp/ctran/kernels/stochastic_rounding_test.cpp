#include "ctran/kernels/collectives/stochastic_rounding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace torch::comms::ctran::kernels {
namespace {

constexpr uint32_t kDrawsOfOne = 1 << 16;

float value_of(uint16_t rounded) { return BFloat16::decode(rounded); }

// The answers that the authors of the generator publish with it.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  struct Row {
    PhiloxWords counter;
    uint64_t key;
    PhiloxWords answer;
  };
  const Row rows[] = {
      {{{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{~0u, ~0u, ~0u, ~0u}}, ~uint64_t{0}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       0x299f31d0a4093822,
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}}};
  for (const auto& row : rows) {
    const PhiloxWords got = philox(row.counter, row.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], row.answer.word[i]);
  }
}

TEST(DrawsTest, AreOfTheSeedTheRanksAndTheElement) {
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> all;
  size_t count = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63})
    for (int source = 0; source < 8; ++source)
      for (int receiver = 0; receiver < 8; ++receiver)
        for (const uint64_t group : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
          const PhiloxWords w = draws_of(seed, source, receiver, group);
          all.emplace(w.word[0], w.word[1], w.word[2], w.word[3]);
          ++count;
        }
  EXPECT_EQ(all.size(), count);
}

// Every value goes up for exactly as many of all draws as makes the mean exact.
TEST(RoundingTest, HasNoBiasOverAllDraws) {
  std::mt19937 random(1);
  std::vector<float> values = {0.1f, -0.1f, 1.0f / 3, 1e-40f, -3e38f, 1.00390625f, 255.9999f};
  while (values.size() < 40) {
    const auto value = bits_as<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value) && std::fabs(value) < 3e38f) values.push_back(value);
  }
  for (const float value : values) {
    // Sums of 65536 terms with the distance of bfloat16 between them are exact in double.
    double sum = 0;
    for (uint32_t draw = 0; draw < kDrawsOfOne; ++draw) {
      const float got = value_of(round_stochastically(value, draw));
      ASSERT_LT(std::fabs(got - value), std::ldexp(1.0, std::max(std::ilogb(value), -126) - 7));
      sum += got;
    }
    EXPECT_EQ(sum, double{value} * kDrawsOfOne) << value;
  }
}

TEST(RoundingTest, LeavesWhatIsABFloat16) {
  for (uint32_t bits = 0; bits < kDrawsOfOne; ++bits) {
    const float value = value_of(static_cast<uint16_t>(bits));
    for (const uint32_t draw : {0u, 1u, 32768u, 65535u}) {
      const float got = value_of(round_stochastically(value, draw));
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(got));
      else
        EXPECT_EQ(bits_as<uint32_t>(got), bits << 16);
    }
  }
}

TEST(RoundingTest, KeepsNanAndInfinityAndWhatIsFinite) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const uint32_t draw : {0u, 1u, 65535u}) {
    for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xffffffffu, 0xff800001u})
      EXPECT_TRUE(std::isnan(value_of(round_stochastically(bits_as<float>(nan), draw))));
    EXPECT_EQ(value_of(round_stochastically(kInfinity, draw)), kInfinity);
    EXPECT_EQ(value_of(round_stochastically(-kInfinity, draw)), -kInfinity);
    EXPECT_EQ(bits_as<uint32_t>(value_of(round_stochastically(kMost, draw))), 0x7f7f0000u);
    EXPECT_EQ(bits_as<uint32_t>(value_of(round_stochastically(-kMost, draw))), 0xff7f0000u);
  }
}

// Over seeds, as users have it. A rounding is off by a distance d of bfloat16 with a variance of at
// most d^2 / 4; the mean of n that are independent has a standard deviation of at most
// d / (2 sqrt n), and is beyond six of them in 2 of 10^9 generators.
TEST(RoundingTest, HasNoBiasOverSeeds) {
  constexpr int kSeeds = 20000;
  constexpr double kDistance = 1.0 / 128;  // of bfloat16 between 1 and 2
  for (const float value : {1.001f, 1.0f + 1.0f / 256, 1.3f, 1.9999f})
    for (int element = 0; element < kDraws; ++element) {
      double sum = 0;
      for (uint64_t seed = 0; seed < kSeeds; ++seed)
        sum += value_of(round_stochastically(value, draw_of(draws_of(seed, 0, 1, 3), element)));
      EXPECT_LT(std::fabs(sum / kSeeds - value), 6 * kDistance / (2 * std::sqrt(kSeeds)))
          << value << ", element " << element;
    }
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
