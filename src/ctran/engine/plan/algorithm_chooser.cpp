#include "ctran/engine/plan/algorithm_chooser.hpp"

#include <algorithm>
#include <string_view>

#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

using schedule::Operation;

constexpr uint64_t kKib = 1024;
constexpr uint64_t kChunkBytes = 128 * kKib;  // of a direct algorithm, to each peer at a time
constexpr uint64_t kPipelineBytes = 256 * kKib;
// Up to this many ranks, a barrier is direct, in one step: 1.7 us against 2.4 us with 3 ranks on 2
// cores, 9.5 us against 16 us with 8.
constexpr uint64_t kBarrierAtOnce = 8;  // ranks
constexpr uint64_t kReaders = 8;  // ranks that may copy out of one rank's memory at the same time

AlgorithmChoice choice(Operation operation, std::string_view name, int64_t chunk = 0) {
  const auto* algorithm = schedule::find_algorithm(operation, name);
  TC_CHECK(algorithm != nullptr);
  return {algorithm, chunk};
}

struct Sizes {
  uint64_t bytes;  // of the whole vector
  uint64_t ranks;
  int64_t chunk, pipeline;  // elements
};

AlgorithmChoice on_one_host(Operation operation, const Sizes& s) {
  switch (operation) {
    case Operation::kAllReduce:
      if (s.bytes * (s.ranks - 1) <= 16 * kKib) return choice(operation, "one_shot");
      return choice(operation, "two_shot", s.chunk);
    case Operation::kReduce:
      if (s.bytes <= 64 * kKib) return choice(operation, "direct");
      return choice(operation, "two_shot", s.chunk);
    case Operation::kReduceScatter:
      return choice(operation, "direct", s.chunk);
    case Operation::kBroadcast:
      if (s.bytes <= 512 * kKib || s.ranks <= kReaders) return choice(operation, "direct");
      return choice(operation, "scatter_all_gather");
    case Operation::kBarrier:
      return choice(operation, s.ranks <= kBarrierAtOnce ? "direct" : "dissemination");
    default:
      return choice(operation, "direct");
  }
}

AlgorithmChoice between_hosts(Operation operation, const Sizes& s) {
  const bool small = s.bytes <= 64 * kKib;
  switch (operation) {
    case Operation::kAllReduce:
      return small ? choice(operation, "doubling") : choice(operation, "ring");
    case Operation::kReduce:
      return small ? choice(operation, "tree") : choice(operation, "ring");
    case Operation::kReduceScatter:
      return small && s.ranks <= 8 ? choice(operation, "direct") : choice(operation, "ring");
    case Operation::kBroadcast:
      return small ? choice(operation, "tree") : choice(operation, "chain", s.pipeline);
    case Operation::kAllGather:
      return small ? choice(operation, "bruck") : choice(operation, "ring");
    case Operation::kGather:
    case Operation::kScatter:
      return small ? choice(operation, "tree") : choice(operation, "direct");
    case Operation::kAllToAll:
      return s.ranks <= 8 ? choice(operation, "direct") : choice(operation, "pairwise");
    default:
      return choice(operation, operation == Operation::kBarrier ? "dissemination" : "direct");
  }
}

}  // namespace

AlgorithmChoice choose_by_size(const ProblemInfo& info) {
  const auto& problem = info.problem;
  const auto elements = [&](uint64_t bytes) {
    return static_cast<int64_t>(std::max<uint64_t>(1, bytes / info.element_bytes));
  };
  const Sizes sizes{static_cast<uint64_t>(problem.count()) * info.element_bytes,
                    static_cast<uint64_t>(problem.size), elements(kChunkBytes),
                    elements(kPipelineBytes)};
  auto chosen = info.one_host ? on_one_host(problem.operation, sizes)
                              : between_hosts(problem.operation, sizes);
  auto chunked = problem;
  chunked.options.chunk = chosen.chunk;
  // Direct algorithms can do every problem, whatever the counts and the number of ranks.
  if (!chosen.algorithm->unsupported_reason(chunked).empty()) {
    const bool vector = problem.operation == Operation::kAllReduce;
    chosen = choice(problem.operation, vector ? "two_shot" : "direct", sizes.chunk);
  }
  return chosen;
}

}  // namespace torch::comms::ctran
