#include <gtest/gtest.h>

#include <set>

#include "schedule/algorithm.hpp"

// 131,072 ranks: any step of any rank can be asked for, and fits what its peers do in that step.
namespace torch::comms::schedule {
namespace {

constexpr size_t kPeersLookedAt = 2;

Problem problem_of(Operation operation, int rank, int size) {
  const AlgorithmOptions options{.chunk = 1000, .local_size = size % 8 == 0 ? 8 : 1, .rings = 3};
  if (operation == Operation::kAllToAll)
    return all_to_all_problem(rank, Blocks::equal(3, size), Blocks::equal(3, size), options);
  if (operation >= Operation::kGather && operation <= Operation::kReduceScatter)
    return block_problem(operation, rank, Blocks::equal(3, size), size / 3, options);
  return vector_problem(operation, rank, size, operation == Operation::kBarrier ? 0 : 1000003,
                        size / 3, options);
}

bool sends(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kSignal;
}

// The elements of the message to a peer, or from it; -1: there is none.
int64_t message(const Step& step, int peer, bool to) {
  int64_t count = -1;
  for (const Action& action : step.transfers())
    if (action.peer == peer && sends(action) == to)
      count = std::max<int64_t>(count, 0) + (to ? action.from.count : action.into.count);
  return count;
}

class Scale : public testing::TestWithParam<int> {
 protected:
  void expect_peers_agree(const Algorithm& algorithm, int rank, int size, int64_t t) {
    algorithm.step(problem_of(algorithm.operation, rank, size), t, mine_);
    std::set<std::pair<int, bool>> some;
    for (const Action& action : mine_.transfers())
      if (some.size() < kPeersLookedAt) some.insert({action.peer, sends(action)});
    for (const auto& [peer, to] : some) {
      ASSERT_GE(peer, 0);
      ASSERT_LT(peer, size);
      algorithm.step(problem_of(algorithm.operation, peer, size), t, theirs_);
      ASSERT_EQ(message(theirs_, rank, !to), message(mine_, peer, to))
          << algorithm.name << ", " << rank << " and " << peer << " in step " << t;
    }
  }

 private:
  Step mine_, theirs_;
};

TEST_P(Scale, PeersAgree) {
  const int size = GetParam();
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->operation <= Operation::kReceive) continue;
    const Problem problem = problem_of(algorithm->operation, 0, size);
    const int64_t steps = algorithm->steps(problem);
    std::set<int64_t> some{0, steps - 1};
    std::set<int> ranks{size - 1};
    // In those with 131,071 messages a step, or as many blocks in one, one rank stands for all.
    const Cost cost = algorithm->cost(problem);
    const bool fans = cost.messages > 100 * steps || cost.received > 100 * cost.sent;
    if (!fans && algorithm->name != "bruck") {
      ranks.insert({0, 1, 2, 3, 4096, size / 3, size / 3 + 1, size / 2, size - 2});
      for (int64_t t = 0; t < steps; t += std::max<int64_t>(1, steps / 20)) some.insert(t);
    }
    for (const int rank : ranks)
      for (const int64_t t : some)
        ASSERT_NO_FATAL_FAILURE(expect_peers_agree(*algorithm, rank, size, t));
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, Scale, testing::Values(131072, 100003));

TEST(Scale, LogStepsAreLogSteps) {
  const auto steps = [](Operation operation, std::string_view name) {
    Problem problem = problem_of(operation, 0, 131072);
    problem.options.chunk = 0;
    return find_algorithm(operation, name)->steps(problem);
  };
  EXPECT_EQ(steps(Operation::kBarrier, "dissemination"), 17);
  EXPECT_EQ(steps(Operation::kAllReduce, "doubling"), 17);
  EXPECT_EQ(steps(Operation::kAllReduce, "halving"), 34);
  EXPECT_EQ(steps(Operation::kAllGather, "bruck"), 17);
  EXPECT_EQ(steps(Operation::kAllReduce, "two_level"), 2 + 28);
}

}  // namespace
}  // namespace torch::comms::schedule
