#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "ctran/kernels/collectives/stochastic_rounding.hpp"
#include "ctran/team/member.hpp"

// What reads its sizes, or its chance, where the kernel runs; over the stand-in's kernels.
namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::StopReason;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;

using test::cpu;

using Counts = std::vector<int64_t>;

// What element `i` of the part from one rank to another is.
int32_t sample(int from, int to, int64_t i, int round) {
  return static_cast<int32_t>(((round * 8 + from) * 8 + to) * 1'000'003 + i);
}
int64_t count_of(int from, int to, int round) {
  std::mt19937 random(static_cast<uint32_t>((round * 8 + from) * 8 + to + 1));
  constexpr int64_t kMost[] = {1, 10, 3000, 100'000};
  return static_cast<int64_t>(random()) % kMost[random() % std::size(kMost)];
}

// A rank with tensors and counts that stay where they are.
class Member : public test::TeamMember {
 public:
  static constexpr size_t kElements = 500'000;
  static constexpr int32_t kUntouched = -1;

  Member(int rank, int size, const AllGatherStrings& exchange)
      : TeamMember(rank, size, exchange),
        input_(kElements),
        output_(kElements, kUntouched),
        sent_(static_cast<size_t>(size)),
        received_(static_cast<size_t>(size)) {}
  ~Member() { cpu.synchronize(stream); }

  Counts& sent() { return sent_; }
  Counts& received() { return received_; }
  void launch(uint64_t limit_ns = 0) {
    team->exchange(
        kernels::AllToAllVDynamic{input_.data(), output_.data(), kElements, kElements,
                                  sizeof(int32_t), sent_.data(), received_.data(), 0, limit_ns},
        stream);
  }
  void finish() { cpu.synchronize(stream); }

  void fill(int round) {
    size_t at = 0;
    for (int peer = 0; peer < size; ++peer) {
      const auto p = static_cast<size_t>(peer);
      sent_[p] = count_of(rank, peer, round);
      received_[p] = count_of(peer, rank, round);
      for (int64_t i = 0; i < sent_[p]; ++i) input_[at++] = sample(rank, peer, i, round);
    }
    output_.assign(kElements, kUntouched);
  }
  void check(int round) const {
    require(!team->failure(), "nothing stopped");
    size_t at = 0;
    for (int peer = 0; peer < size; ++peer)
      for (int64_t i = 0; i < received_[static_cast<size_t>(peer)]; ++i)
        require(output_[at++] == sample(peer, rank, i, round), "what was sent has come");
    for (; at < kElements; ++at) require(output_[at] == kUntouched, "the rest is as it was");
  }
  bool is_untouched() const {
    return std::ranges::all_of(output_, [](int32_t value) { return value == kUntouched; });
  }

 private:
  std::vector<int32_t> input_, output_;
  Counts sent_, received_;
};

class CountedTest : public test::KernelsTest {};

TEST_F(CountedTest, PartsGoByTheCountsOfTheMoment) {
  for (const int size : {2, 3, 4})
    EXPECT_EQ(on_processes(size,
                           [size](int rank, const AllGatherStrings& exchange) {
                             Member member(rank, size, exchange);
                             for (int round = 0; round < 12; ++round) {
                               member.fill(round);
                               member.launch();
                               member.finish();
                               member.check(round);
                             }
                             exchange("");
                           }),
              0);
}

TEST_F(CountedTest, TakeTurnsWithMessagesAndCollectives) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    for (int round = 0; round < 5; ++round) {
      member.fill(round);
      std::vector<float> values(10, 1);
      kernels::KernelCall call{};
      call.dtype = Dtype::kFloat32;
      call.count = values.size();
      call.input = call.output = values.data();
      int sent = round, received = -1;
      const kernels::KernelMessage messages[] = {{&sent, sizeof sent, (rank + 1) % 3, 0},
                                                 {&received, sizeof received, (rank + 2) % 3, 1}};
      member.team->exchange(messages, 0, member.stream);
      member.launch();
      member.team->launch(call, member.stream);
      member.finish();
      member.check(round);
      EXPECT_EQ(received, round);
      EXPECT_EQ(values[9], 3);
    }
    exchange("");
  });
}

TEST_F(CountedTest, TwoRanksThatSayDifferentSizesStop) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    // More than a send may be ahead of its receive: else it can be over, and right.
    member.sent() = member.received() = {100'000, 100'000};
    if (rank == 1) member.received()[0] += 1;
    member.launch();
    member.finish();
    const auto stopped = member.team->failure();
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->reason, StopReason::kSizeMismatch);
    EXPECT_EQ(stopped->collective, Collective::kAllToAllVDynamic);
    EXPECT_EQ(stopped->waited_for, 1 - rank);
    EXPECT_EQ(stopped->launch, 1u);
    exchange("");
  });
}

void expect_refused(const std::function<void(Member&)>& spoil) {
  on_threads(3, [&](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    member.fill(2);
    if (rank == 1) spoil(member);
    member.launch();
    member.finish();
    const auto stopped = member.team->failure();
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->reason, StopReason::kInvalidCounts);
    EXPECT_EQ(stopped->collective, Collective::kAllToAllVDynamic);
    EXPECT_EQ(stopped->waited_for, 1);
    EXPECT_TRUE(rank != 1 || member.is_untouched());
    exchange("");
  });
}

TEST_F(CountedTest, CountsThatAreImpossibleStopAllAndTouchNothing) {
  constexpr auto kElements = static_cast<int64_t>(Member::kElements);
  expect_refused([](Member& member) { member.sent()[2] = -1; });
  expect_refused([](Member& member) { member.received()[0] = -5; });
  expect_refused([](Member& member) { member.sent()[0] = kElements + 1; });
  expect_refused([](Member& member) { member.received()[2] = INT64_MAX; });
  expect_refused([](Member& member) { member.sent()[1] += 1; });
}

TEST_F(CountedTest, EndAtTheirLimit) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 0) {
      member.fill(0);
      member.launch(50'000'000);
      member.finish();
      const auto stopped = member.team->failure();
      ASSERT_TRUE(stopped);
      EXPECT_EQ(stopped->reason, StopReason::kTimeout);
      EXPECT_EQ(stopped->waited_for, 1);
    }
    exchange("");
  });
}

// A reduce-scatter of rounded parts.
float input_of(int rank, size_t i) {
  return static_cast<float>(std::sin(static_cast<double>(i) * 0.37 + rank) * std::pow(2.0, rank));
}
std::vector<float> reduced(const test::TeamMember& self, size_t count, uint64_t seed,
                           bool averages) {
  const auto ranks = static_cast<size_t>(self.size);
  std::vector<float> input(count * ranks), output(count);
  for (size_t i = 0; i < input.size(); ++i) input[i] = input_of(self.rank, i);
  self.team->reduce_scatter({kernels::KernelAlgorithm::kAutomatic, 0, count, input.data(),
                             output.data(), &seed, averages, 0},
                            self.stream);
  cpu.synchronize(self.stream);
  require(!self.team->failure(), "nothing stopped");
  return output;
}

TEST_F(CountedTest, QuantizedPartsAreRoundedByTheSeedAndAddedInTheOrderOfRanks) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    const test::TeamMember self(rank, 3, exchange);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{13}, size_t{1000}, size_t{200'001}}) {
      const auto seed_of = [](int r) { return uint64_t{1} << (40 + r); };
      const bool averages = count % 2 == 0;
      const auto got = reduced(self, count, seed_of(rank), averages);
      for (size_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int source = 0; source < 3; ++source) {
          float value = input_of(source, static_cast<size_t>(rank) * count + i);
          if (source != rank) {
            const auto draws = kernels::draws_of(seed_of(source), source, rank, i / 8);
            value = kernels::BFloat16::decode(kernels::round_stochastically(
                value, kernels::draw_of(draws, static_cast<int>(i % 8))));
          }
          sum = source == 0 ? value : sum + value;
        }
        ASSERT_EQ(got[i], averages ? sum / 3 : sum) << "element " << i << " of " << count;
      }
    }
    exchange("");
  });
}

TEST_F(CountedTest, QuantizedSumsAreNanAfterAStop) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const test::TeamMember self(rank, 2, exchange);
    if (rank == 0) {
      std::vector<float> input(200, 1), output(100);
      const uint64_t seed = 1;
      self.team->reduce_scatter({kernels::KernelAlgorithm::kAutomatic, 0, 100, input.data(),
                                 output.data(), &seed, false, 50'000'000},
                                self.stream);
      cpu.synchronize(self.stream);
      const auto stopped = self.team->failure();
      ASSERT_TRUE(stopped);
      EXPECT_EQ(stopped->reason, StopReason::kTimeout);
      EXPECT_EQ(stopped->collective, Collective::kQuantizedReduceScatter);
      for (const float value : output) EXPECT_TRUE(std::isnan(value));
    }
    exchange("");
  });
}

}  // namespace
}  // namespace torch::comms::ctran
