#include "ctran/selection/algorithm_selection.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

using schedule::Blocks;
using schedule::Operation;
using schedule::Problem;

constexpr ElementSizes kFloat{.bytes = 4};
const TopologyFacts kOneHost{.link = LinkType::kShm, .local_ranks = 2, .cores = 2};

Problem all_reduce(int size, int64_t bytes, int rank = 0,
                   const schedule::AlgorithmOptions& options = {}) {
  return vector_problem(Operation::kAllReduce, rank, size, bytes / 4, 0, options);
}

std::string message_of(const std::function<void()>& call, Errc code) {
  try {
    call();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.why();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Every operation of the table, at one rank of `size`.
std::vector<Problem> problems(int rank, int size, int64_t count) {
  std::vector<Problem> all;
  for (const auto operation : {Operation::kBroadcast, Operation::kReduce, Operation::kAllReduce})
    all.push_back(vector_problem(operation, rank, size, count, size - 1));
  all.push_back(vector_problem(Operation::kBarrier, rank, size, 0));
  const Blocks blocks = Blocks::equal(count, size);
  for (const auto operation :
       {Operation::kGather, Operation::kScatter, Operation::kAllGather, Operation::kReduceScatter})
    all.push_back(block_problem(operation, rank, blocks, size - 1));
  all.push_back(all_to_all_problem(rank, blocks, blocks));
  return all;
}

TEST(Select, LittleDataGoesInOneHopAndMuchDataIsNotSentToEverybody) {
  const Tuning tuning;
  EXPECT_EQ(select_algorithm(all_reduce(4, 64), kFloat, kOneHost, tuning).algorithm->name,
            "one_shot");
  const auto large = select_algorithm(all_reduce(4, 64 << 20), kFloat, kOneHost, tuning);
  EXPECT_EQ(large.algorithm->name, "two_shot");
  EXPECT_GT(large.chunk, 0) << "scratch of a quarter of the vector would not fit";
  EXPECT_EQ(large.reason, AlgorithmSelection::SelectionReason::kEstimated);
}

TEST(Select, LatencyDecidesBetweenHostsForLittleDataAndBandwidthForMuch) {
  const TopologyFacts hosts{.link = LinkType::kTcp, .local_ranks = 1, .cores = 64};
  const Tuning tuning;
  const auto small = select_algorithm(all_reduce(64, 8), kFloat, hosts, tuning);
  const auto large = select_algorithm(all_reduce(64, 256 << 20), kFloat, hosts, tuning);
  Problem problem = all_reduce(64, 8);
  EXPECT_LT(small.algorithm->cost(problem).steps, 13);
  problem = all_reduce(64, 256 << 20);
  EXPECT_LT(large.algorithm->cost(problem).sent, 2 * problem.count());
}

TEST(Select, ManyRanksAHostLeaveTheNetworkToOneBlockEach) {
  const TopologyFacts hosts{.link = LinkType::kTcp, .local_ranks = 8, .cores = 64};
  const auto choice =
      select_algorithm(all_reduce(64, 64 << 20, 0, {.local_size = 8}), kFloat, hosts, Tuning());
  // Whatever it is called: a rank's share of the network is its block, there and back.
  const auto seen = all_reduce(64, 64 << 20, 0, {.local_size = 8});
  schedule::Step step;
  int64_t far = 0;
  for (int64_t t = 0; t < choice.algorithm->steps(seen); ++t) {
    choice.algorithm->step(seen, t, step);
    for (const auto& action : step.transfers())
      if (action.kind == schedule::ActionKind::kSend && action.peer >= 8) far += action.from.count;
  }
  EXPECT_LE(far, 2 * seen.count() / 8);
}

TEST(Select, SumsThatTravelInAWiderDtypeAreCountedSo) {
  const TopologyFacts hosts{.link = LinkType::kTcp, .local_ranks = 1, .cores = 64};
  const auto& ring = *schedule::find_algorithm(Operation::kAllReduce, "ring");
  const auto& two_shot = *schedule::find_algorithm(Operation::kAllReduce, "two_shot");
  const auto estimate = [&](const schedule::Algorithm& algorithm, const ElementSizes& element) {
    return estimate_ns(algorithm, all_reduce(4, 64 << 20), element, hosts, kDefaultConstants);
  };
  EXPECT_GT(estimate(ring, {.bytes = 2, .accumulator_bytes = 4}),
            1.5 * estimate(ring, {.bytes = 2}));
  EXPECT_EQ(estimate(two_shot, {.bytes = 2, .accumulator_bytes = 4}),
            estimate(two_shot, {.bytes = 2}));
}

TEST(Select, EveryRankChoosesAlike) {
  for (const int size : {1, 2, 3, 5, 8, 13})
    for (const int64_t count : {0, 1, 7, 1 << 10, 1 << 20}) {
      const auto first = problems(0, size, count);
      for (int rank = 1; rank < size; ++rank) {
        const auto other = problems(rank, size, count);
        for (size_t i = 0; i < first.size(); ++i) {
          const auto a = select_algorithm(first[i], kFloat, kOneHost, Tuning());
          const auto b = select_algorithm(other[i], kFloat, kOneHost, Tuning());
          ASSERT_EQ(a.algorithm, b.algorithm) << operation_name(first[i].operation) << " " << size;
          ASSERT_EQ(a.chunk, b.chunk);
        }
      }
    }
}

TEST(Select, CountsThatOnlyTheirOwnerKnowsDecideNothing) {
  const int64_t some[] = {0, 5, 5, 9}, other_offsets[] = {0, 5, 1 << 20, 3 << 20};
  const auto a = select_algorithm(
      all_to_all_problem(0, Blocks::from_offsets(some), Blocks::from_offsets(other_offsets)),
      kFloat, kOneHost, Tuning());
  const auto b = select_algorithm(all_to_all_problem(1, Blocks::from_offsets(other_offsets),
                                                     Blocks::from_offsets(other_offsets)),
                                  kFloat, kOneHost, Tuning());
  EXPECT_EQ(a.algorithm, b.algorithm);
  EXPECT_EQ(a.chunk, b.chunk);
}

TEST(Select, AWishIsFollowedAndOnlyItsChunkIsChosen) {
  const auto ring =
      select_algorithm(all_reduce(4, 8), kFloat, kOneHost, Tuning(), {.algorithm = "ring"});
  EXPECT_EQ(ring.algorithm->name, "ring");
  EXPECT_EQ(ring.reason, AlgorithmSelection::SelectionReason::kRequested);
  const auto chain = select_algorithm(all_reduce(4, 1 << 20), kFloat, kOneHost, Tuning(),
                                      {.algorithm = "chain", .chunk_bytes = 4096});
  EXPECT_EQ(chain.chunk, 1024);
  const auto tiny = select_algorithm(all_reduce(4, 1 << 20), kFloat, kOneHost, Tuning(),
                                     {.algorithm = "chain", .chunk_bytes = 1});
  EXPECT_EQ(tiny.chunk, 1) << "a chunk holds an element at least";
}

TEST(Select, AWishThatCannotBeIsNamedTogetherWithThoseThatCan) {
  const auto unknown = message_of(
      [] { select_algorithm(all_reduce(4, 8), kFloat, kOneHost, Tuning(), {.algorithm = "star"}); },
      Errc::kInvalidArgument);
  EXPECT_NE(unknown.find("'star'"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("two_shot"), std::string::npos) << unknown;

  const auto problem =
      block_problem(Operation::kReduceScatter, 0, Blocks::equal(4, 4), 0, {.rank_order = true});
  const auto unable = message_of(
      [&] { select_algorithm(problem, kFloat, kOneHost, Tuning(), {.algorithm = "ring"}); },
      Errc::kUnsupported);
  EXPECT_NE(unable.find("rank order"), std::string::npos) << unable;
  EXPECT_NE(unable.find(": direct"), std::string::npos) << unable;
}

TEST(Select, TheFirstOverrideThatFitsAndCanDoItWins) {
  const auto tuning = parse_tuning(
      "torchcomms tuning 1\n"
      "use all_reduce wire shm ranks 2..4 bytes 0..1000 algorithm ring chunk_bytes 0\n"
      "use all_reduce wire shm ranks 4..4 bytes 0..2000 algorithm chain chunk_bytes 512\n"
      "use all_reduce wire shm ranks 4..4 bytes 4000..4000 algorithm two_level chunk_bytes 0\n",
      "test");
  const auto chosen = [&](int size, int64_t bytes, const schedule::AlgorithmOptions& options = {}) {
    return select_algorithm(all_reduce(size, bytes, 0, options), kFloat, kOneHost, tuning);
  };
  EXPECT_EQ(chosen(4, 1000).algorithm->name, "ring");
  EXPECT_EQ(chosen(4, 1000).reason, AlgorithmSelection::SelectionReason::kTuned);
  EXPECT_EQ(chosen(4, 1004).algorithm->name, "chain");
  EXPECT_EQ(chosen(4, 1004).chunk, 128);
  EXPECT_EQ(chosen(5, 8).reason, AlgorithmSelection::SelectionReason::kEstimated);
  EXPECT_EQ(chosen(4, 4000, {.local_size = 3}).reason,
            AlgorithmSelection::SelectionReason::kEstimated)
      << "two_level needs hosts of one size";
}

TEST(Select, ScratchIsBoundedWhereThereIsAnotherWay) {
  const Tuning tuning;
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{1} << 30, int64_t{1} << 34})
    for (const int size : {2, 3, 16, 64}) {
      Problem problem = all_reduce(size, bytes);
      const auto choice = select_algorithm(problem, kFloat, kOneHost, tuning);
      problem.options.chunk = choice.chunk;
      EXPECT_LE(choice.algorithm->cost(problem).scratch * 4, kMostScratchBytes)
          << choice.algorithm->name << " " << size << " " << bytes;
    }
}

TEST(Model, MoreBytesTakeLongerAndCrowdedCoresToo) {
  const TopologyFacts oversubscribed{.link = LinkType::kShm, .local_ranks = 4, .cores = 2};
  for (const auto* algorithm : schedule::algorithms()) {
    if (algorithm->operation != Operation::kAllReduce) continue;
    const Problem small = all_reduce(4, 1 << 10), large = all_reduce(4, 1 << 20);
    if (!algorithm->unsupported_reason(small).empty()) continue;
    const double a = estimate_ns(*algorithm, small, kFloat, kOneHost, kDefaultConstants);
    const double b = estimate_ns(*algorithm, large, kFloat, kOneHost, kDefaultConstants);
    const double c = estimate_ns(*algorithm, large, kFloat, oversubscribed, kDefaultConstants);
    EXPECT_LT(a, b) << algorithm->name;
    EXPECT_LT(b, c) << algorithm->name;
  }
}

TEST(Model, AChainInOnePieceWaitsForItsLength) {
  const auto& chain = *schedule::find_algorithm(Operation::kBroadcast, "chain");
  const auto estimate = [&](int64_t chunk) {
    return estimate_ns(
        chain, vector_problem(Operation::kBroadcast, 0, 8, 1 << 22, 0, {.chunk = chunk}), kFloat,
        {.link = LinkType::kTcp, .local_ranks = 1, .cores = 1}, kDefaultConstants);
  };
  EXPECT_GT(estimate(0), 3 * estimate(1 << 18));
}

// On one host their receivers copy them, all at once, up to 4 MiB; a network, and shared memory
// with larger ones, leave the root to send each.
TEST(Model, TheRootOfADirectBroadcastSendsForFreeOnOneHost) {
  const auto& direct = *schedule::find_algorithm(Operation::kBroadcast, "direct");
  const auto estimate = [&](int size, int64_t count, LinkType link) {
    return estimate_ns(direct, vector_problem(Operation::kBroadcast, 0, size, count, 0), kFloat,
                       {.link = link, .local_ranks = 1, .cores = 1}, kDefaultConstants);
  };
  constexpr int64_t kLargest = 1 << 22, kLarge = 1 << 19, kSmall = 1 << 10;
  EXPECT_LT(estimate(8, kLarge, LinkType::kShm), 2 * estimate(2, kLarge, LinkType::kShm));
  EXPECT_GT(estimate(8, kLargest, LinkType::kShm), 3 * estimate(2, kLargest, LinkType::kShm));
  EXPECT_GT(estimate(8, kLarge, LinkType::kTcp), 3 * estimate(2, kLarge, LinkType::kTcp));
  EXPECT_GT(estimate(8, kSmall, LinkType::kShm), 3 * estimate(2, kSmall, LinkType::kShm));
}

// So that who has a very large one hands it on, in pieces; two ranks have nobody to hand it on to.
TEST(Select, AVeryLargeBroadcastOnOneHostIsHandedOn) {
  const auto chosen = [](int size, int64_t count, int ranks, int cores) {
    return select_algorithm(vector_problem(Operation::kBroadcast, 0, size, count, 0), kFloat,
                            {.link = LinkType::kShm, .local_ranks = ranks, .cores = cores}, {})
        .algorithm->name;
  };
  constexpr int64_t kLargest = 1 << 22, kLarge = 1 << 19;
  for (const int cores : {1, 2, 4}) {
    EXPECT_NE(chosen(4, kLargest, 4, cores), "direct");
    EXPECT_EQ(chosen(4, kLarge, 4, cores), "direct");
    EXPECT_EQ(chosen(2, kLargest, 2, cores), "direct");
  }
}

}  // namespace
}  // namespace torch::comms::ctran
