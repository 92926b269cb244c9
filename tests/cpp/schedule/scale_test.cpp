#include <gtest/gtest.h>

#include <set>

#include "schedule/algorithm.hpp"

// 131,072 ranks: any step of any rank can be asked for, and fits what its peers do in that step.
namespace torch::comms::schedule {
namespace {

constexpr size_t kPeersLookedAt = 4;

Problem problem_of(Operation operation, int rank, int size) {
  const Options options{.chunk = 1000, .local_size = size % 8 == 0 ? 8 : 1, .rings = 3};
  if (operation == Operation::kAllToAll)
    return exchange_problem(rank, Blocks::equal(3, size), Blocks::equal(3, size), options);
  if (operation >= Operation::kGather && operation <= Operation::kReduceScatter)
    return block_problem(operation, rank, Blocks::equal(3, size), size / 3, options);
  return vector_problem(operation, rank, size, operation == Operation::kBarrier ? 0 : 1000003,
                        size / 3, options);
}

bool sends(const Action& action) {
  return action.verb == Verb::kSend || action.verb == Verb::kSignal;
}

// The elements of the message to a peer, or from it; -1: there is none.
int64_t message(const Step& step, int peer, bool to) {
  int64_t count = -1;
  for (const Action& action : step.transfers())
    if (action.peer == peer && sends(action) == to)
      count = std::max<int64_t>(count, 0) + (to ? action.from.count : action.into.count);
  return count;
}

void expect_peers_agree(const Algorithm& algorithm, int rank, int size, int64_t t) {
  Step mine, theirs;
  algorithm.step(problem_of(algorithm.operation, rank, size), t, mine);
  std::set<std::pair<int, bool>> some;
  for (const Action& action : mine.transfers())
    if (some.size() < kPeersLookedAt) some.insert({action.peer, sends(action)});
  for (const auto& [peer, to] : some) {
    ASSERT_GE(peer, 0);
    ASSERT_LT(peer, size);
    algorithm.step(problem_of(algorithm.operation, peer, size), t, theirs);
    ASSERT_EQ(message(theirs, rank, !to), message(mine, peer, to))
        << algorithm.name << ", " << rank << " and " << peer << " in step " << t;
  }
}

class Scale : public testing::TestWithParam<int> {};

TEST_P(Scale, PeersAgree) {
  const int size = GetParam();
  for (const Algorithm* algorithm : algorithms()) {
    // Those of everybody with everybody have 131,071 messages a step; two ranks of them will do.
    const bool light = algorithm->steps(problem_of(algorithm->operation, 0, size)) > 2 &&
                       algorithm->operation != Operation::kAllToAll;
    std::set<int> ranks{0, size - 1};
    if (light) ranks.insert({1, 2, 3, 4096, size / 3, size / 3 + 1, size / 2, size - 2});
    if (algorithm->operation <= Operation::kReceive) continue;
    const int64_t steps = algorithm->steps(problem_of(algorithm->operation, 0, size));
    std::set<int64_t> some{0, steps / 2, steps - 1};
    for (int64_t t = 0; t < steps; t += std::max<int64_t>(1, steps / 20)) some.insert(t);
    for (const int rank : ranks)
      for (const int64_t t : some) {
        if (t % 5 != 0 && !light) continue;
        ASSERT_NO_FATAL_FAILURE(expect_peers_agree(*algorithm, rank, size, t));
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, Scale, testing::Values(131072, 100003));

TEST(Scale, LogStepsAreLogSteps) {
  const auto steps = [](Operation operation, std::string_view name) {
    return find_algorithm(operation, name)->steps(problem_of(operation, 0, 131072));
  };
  EXPECT_EQ(steps(Operation::kBarrier, "dissemination"), 17);
  EXPECT_EQ(steps(Operation::kAllReduce, "doubling"), 17);
  EXPECT_EQ(steps(Operation::kAllReduce, "halving"), 34);
  EXPECT_EQ(steps(Operation::kAllGather, "bruck"), 17);
  EXPECT_EQ(steps(Operation::kAllReduce, "two_level"), 2 + 28);
}

}  // namespace
}  // namespace torch::comms::schedule
