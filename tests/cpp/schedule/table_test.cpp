#include <gtest/gtest.h>

#include <bitset>
#include <map>
#include <regex>
#include <set>

#include "schedule/proof.hpp"

// What the table says about its algorithms, and what holds for all of them without running them
// all.
namespace torch::comms::schedule {
namespace {

TEST(Table, HasSomethingForEveryOperation) {
  std::set<Operation> all, in_rank_order;
  std::set<std::string> names;
  for (const Algorithm* algorithm : algorithms()) {
    const std::string full =
        std::string(operation_name(algorithm->operation)) + " " + std::string(algorithm->name);
    EXPECT_TRUE(names.insert(full).second) << full << " is there twice";
    EXPECT_TRUE(std::regex_match(std::string(algorithm->name), std::regex("[a-z_]+"))) << full;
    EXPECT_FALSE(algorithm->summary.empty()) << full;
    EXPECT_FALSE(algorithm->source.empty()) << full;
    EXPECT_EQ(algorithm->order_text.empty(), algorithm->reduction_order == ReductionOrder::kNone)
        << full;
    EXPECT_EQ(find_algorithm(algorithm->operation, algorithm->name), algorithm);
    all.insert(algorithm->operation);
    if (algorithm->reduction_order == ReductionOrder::kRankOrder)
      in_rank_order.insert(algorithm->operation);
  }
  EXPECT_EQ(all.size(), 11u);
  EXPECT_EQ(in_rank_order,
            (std::set{Operation::kReduce, Operation::kAllReduce, Operation::kReduceScatter}));
  EXPECT_EQ(find_algorithm(Operation::kBarrier, "ring"), nullptr);
}

TEST(Table, SaysWhyNot) {
  const Algorithm& two_level = *find_algorithm(Operation::kAllReduce, "two_level");
  EXPECT_EQ(two_level.unsupported_reason(
                vector_problem(Operation::kAllReduce, 0, 6, 1, 0, {.local_size = 4})),
            "needs the same number of ranks on each host");
  EXPECT_EQ(two_level.unsupported_reason(vector_problem(Operation::kReduce, 0, 6, 1)),
            "does another operation");
  const int64_t offsets[] = {0, 1, 2};
  const Algorithm& bruck = *find_algorithm(Operation::kAllToAll, "bruck");
  EXPECT_EQ(bruck.unsupported_reason(all_to_all_problem(0, Blocks::from_offsets(offsets),
                                                        Blocks::from_offsets(offsets))),
            "needs the same count for all pairs");
}

// Of one step: how many elements go to or come from whom, seen from the rank; -1 for none.
using Traffic = std::map<std::pair<bool, int>, int64_t>;
Traffic traffic(const Step& step, const Problem& p) {
  Traffic seen;
  for (const Action& action : step.transfers()) {
    const bool sends = action.kind == ActionKind::kSend || action.kind == ActionKind::kSignal;
    seen[{sends, (action.peer - p.rank + p.size) % p.size}] +=
        sends ? action.from.count : action.into.count;
  }
  return seen;
}

bool really_rotates(const Algorithm& algorithm) {
  Step step;
  for (const int size : {2, 5, 8, 11}) {
    const int64_t count = algorithm.operation == Operation::kAllReduce ? 2 * size : 2;
    const Problems problems({algorithm.operation, size, count});
    for (int64_t t = 0; t < algorithm.steps(problems[0]); ++t) {
      algorithm.step(problems[0], t, step);
      const Traffic first = traffic(step, problems[0]);
      for (int rank = 1; rank < size; ++rank) {
        algorithm.step(problems[rank], t, step);
        if (traffic(step, problems[rank]) != first) return false;
      }
    }
  }
  return true;
}

TEST(Table, SaysWhichAlgorithmsRotate) {
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->operation <= Operation::kReceive) continue;
    const bool rings = algorithm->name == "rings";  // rotate only without hosts
    EXPECT_EQ(algorithm->is_rotation_invariant, really_rotates(*algorithm) && !rings)
        << algorithm->name;
  }
}

TEST(SendReceive, MovesOneMessageOrNone) {
  const Algorithm& send = *find_algorithm(Operation::kSend, "direct");
  const Algorithm& receive = *find_algorithm(Operation::kReceive, "direct");
  for (const int64_t count : {0, 1, 9}) {
    const Problem to = vector_problem(Operation::kSend, 0, 2, count, 1);
    const Problem from = vector_problem(Operation::kReceive, 1, 2, count, 0);
    const Program programs[] = {program_of(send, to), program_of(receive, from)};
    const Report report = interpret(programs, {});
    ASSERT_EQ(report.failure, "");
    ASSERT_EQ(report.outputs[1].size(), static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(report.outputs[1][i], leaf(0, i));
    EXPECT_EQ(report.measured[0].sent, send.cost(to).sent);
    EXPECT_EQ(report.measured[1].received, receive.cost(from).received);
    EXPECT_EQ(report.measured[0].messages, count > 0 ? 1 : 0);
  }
}

TEST(SendReceive, OfDifferentSizesDoesNotPass) {
  const Program programs[] = {program_of(*find_algorithm(Operation::kSend, "direct"),
                                         vector_problem(Operation::kSend, 0, 2, 3, 1)),
                              program_of(*find_algorithm(Operation::kReceive, "direct"),
                                         vector_problem(Operation::kReceive, 1, 2, 4, 0))};
  EXPECT_NE(interpret(programs, {}).failure, "");
}

TEST(Barrier, EveryRankHearsFromEveryRank) {
  const Algorithm& barrier = *find_algorithm(Operation::kBarrier, "dissemination");
  for (int size = 1; size <= 64; ++size) {
    // By rank: of whom it knows, directly or not, that they are here. Messages meet in their step.
    std::vector<std::bitset<64>> known(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) known[rank].set(rank);
    Step step;
    const int64_t steps = barrier.steps(vector_problem(Operation::kBarrier, 0, size, 0));
    for (int64_t t = 0; t < steps; ++t) {
      const auto before = known;
      for (int rank = 0; rank < size; ++rank) {
        barrier.step(vector_problem(Operation::kBarrier, rank, size, 0), t, step);
        for (const Action& action : step.transfers())
          if (action.kind == ActionKind::kWait) known[rank] |= before[action.peer];
      }
    }
    for (const auto& ranks : known) EXPECT_EQ(ranks.count(), static_cast<size_t>(size));
  }
}

}  // namespace
}  // namespace torch::comms::schedule
