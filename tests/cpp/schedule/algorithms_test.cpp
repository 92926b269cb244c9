#include <gtest/gtest.h>

#include "schedule/proof.hpp"

// Every algorithm of the table, for 1 to 64 ranks. A failed case prints what to pass to disproof().
namespace torch::comms::schedule {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kMostRanks = 24;  // one thread and many accesses: nothing to find, and slow
#else
constexpr int kMostRanks = 64;
#endif
constexpr int kFewRanks = 20;  // up to which every case is tried with every number of ranks

bool rooted(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

bool by_blocks(Operation operation) {
  return operation >= Operation::kGather && operation <= Operation::kAllToAll;
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {
 protected:
  void prove(const Case& what) {
    const std::string text = disproof(*GetParam(), what, ++seed_);
    ASSERT_EQ(text, "");
  }

 private:
  uint64_t seed_ = 0;
};

// Those that take part in an operation of all ranks.
std::vector<const Algorithm*> collectives() {
  std::vector<const Algorithm*> found;
  for (const Algorithm* algorithm : algorithms())
    if (algorithm->operation > Operation::kReceive) found.push_back(algorithm);
  return found;
}

TEST_P(EveryAlgorithm, IsRightForAnyCount) {
  const Operation operation = GetParam()->operation;
  for (int size = 1; size <= kMostRanks; ++size) {
    // None, one, a prime, fewer than ranks, the same for all ranks, many.
    std::vector<int64_t> counts = {0, 1, 7, size - 1, 3 * size, 131};
    if (by_blocks(operation)) counts = {0, 1, 3};
    if (operation == Operation::kBarrier) counts = {0};
    // Many ranks take turns with the counts.
    for (size_t i = 0; i < counts.size(); ++i)
      if (size <= kFewRanks || i == size % counts.size())
        prove({operation, size, counts[i], size / 3});
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryAlgorithm, IsRightForEveryRoot) {
  const Operation operation = GetParam()->operation;
  if (!rooted(operation)) return;
  for (const int size : {2, 3, 4, 5, 7, 8, 13, 16, 33, 64})
    for (int root = 0; root < size; ++root) {
      prove({operation, size, 5, root, {.chunk = 2}});
      if (HasFatalFailure()) return;
    }
}

TEST_P(EveryAlgorithm, IsRightForBlocksOfDifferentSizes) {
  const Operation operation = GetParam()->operation;
  if (!by_blocks(operation) || GetParam() == find_algorithm(Operation::kAllToAll, "bruck")) return;
  for (int size = 1; size <= kMostRanks; ++size) {
    prove({operation, size, 3, size / 2, {.chunk = 2}, true});
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryAlgorithm, IsRightForAnyChunk) {
  const Operation operation = GetParam()->operation;
  const auto steps = [&](int64_t chunk) {
    return GetParam()->steps(Problems({operation, 3, 12, 0, {.chunk = chunk}})[0]);
  };
  if (steps(0) == steps(1)) return;  // it does not work in chunks
  for (int size = 2; size <= kMostRanks; size += size < 10 ? 1 : 9)
    for (const int64_t chunk : {1, 4, 5, 100}) {
      prove({operation, size, 12, 1, {.chunk = chunk}});
      if (HasFatalFailure()) return;
    }
}

TEST_P(EveryAlgorithm, IsRightForAnyNumberOfHostsAndRings) {
  if (GetParam()->name != "two_level" && GetParam()->name != "rings") return;
  for (int size = 1; size <= kMostRanks; size += size < kFewRanks ? 1 : 4)
    for (int local_size = 1; local_size <= size; ++local_size) {
      if (size % local_size != 0) continue;
      const int rings = 1 + size % (local_size + 1);
      const AlgorithmOptions options{.local_size = local_size, .rings = rings};
      prove({Operation::kAllReduce, size, size + local_size - 1, 0, options});
      // Cut evenly, so that what is paid is known exactly.
      const AlgorithmOptions in_chunks{.chunk = 2, .local_size = local_size, .rings = rings};
      if (size > kFewRanks) continue;
      prove({Operation::kAllReduce, size, int64_t{size} * rings, 0, options});
      prove({Operation::kAllReduce, size, int64_t{size} * local_size, 0, in_chunks});
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Schedule, EveryAlgorithm, testing::ValuesIn(collectives()),
                         [](const auto& info) {
                           return std::string(operation_name(info.param->operation)) + "_" +
                                  std::string(info.param->name);
                         });

}  // namespace
}  // namespace torch::comms::schedule
