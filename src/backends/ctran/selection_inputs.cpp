#include "backends/ctran/selection_inputs.hpp"

#include <algorithm>

#include "backends/ctran/operation_mapping.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Blocks;
using schedule::Operation;
using schedule::Problem;

constexpr int64_t kLargestShown = int64_t{1} << 30;  // bytes

// Returns: an operation of `bytes` bytes in total as rank 0 sees it. Units: bytes.
Problem problem_of(Operation operation, int size, int64_t bytes,
                   const schedule::AlgorithmOptions& options) {
  const Blocks blocks = Blocks::equal(bytes / size, size);
  switch (operation) {
    case Operation::kGather:
    case Operation::kScatter:
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      return block_problem(operation, 0, blocks, 0, options);
    case Operation::kAllToAll:
      return all_to_all_problem(0, blocks, blocks, options);
    case Operation::kBarrier:
      return vector_problem(operation, 0, size, 0, 0, options);
    default:
      return vector_problem(operation, 0, size, bytes, 0, options);
  }
}

}  // namespace

AlgorithmRequest AlgorithmRequests::request_for(Operation operation) const noexcept {
  AlgorithmRequest request{.chunk_bytes = chunk_bytes};
  for (const auto* algorithm : algorithms)
    if (algorithm->operation == operation) request.algorithm = algorithm->name;
  return request;
}

TopologyFacts topology_facts_of(const SelectionInputs& inputs, bool one_host, int size) noexcept {
  TopologyFacts facts = inputs.topology;
  facts.link = size == 1                                            ? LinkType::kSelf
               : one_host && inputs.link_policy != LinkPolicy::kTcp ? LinkType::kShm
                                                                    : LinkType::kTcp;
  return facts;
}

AlgorithmChoice choose_algorithm(const SelectionInputs& inputs, const ProblemInfo& info) {
  const auto selected = select_algorithm(
      info.problem, ElementSizes::of(info.element_bytes, info.has_wide_accumulator),
      topology_facts_of(inputs, info.one_host, info.problem.size), inputs.shared_tuning.tuning);
  return {.algorithm = selected.algorithm, .chunk = selected.chunk};
}

Placement placement_of(const EngineGroup& group) {
  Placement placement;
  const auto& link_context = *group.link_context();
  const auto same_host = [&](int a, int b) {
    return link_context.is_same_host(group.context_rank(a), group.context_rank(b));
  };
  const int size = group.size();
  int first = 1;
  while (first < size && same_host(0, first)) ++first;
  placement.is_one_host = first == size;
  if (size % first != 0) return placement;
  for (int rank = 0; rank < size; ++rank) {
    const int leader = rank / first * first;
    if (!same_host(leader, rank) || (leader > 0 && same_host(leader - 1, rank))) return placement;
  }
  placement.local_size = first;
  return placement;
}

std::vector<TorchCommBackend::AlgorithmRange> algorithm_ranges(const SelectionInputs& inputs,
                                                               const EngineGroup& group,
                                                               const AlgorithmRequests& requests) {
  const Placement placement = placement_of(group);
  const TopologyFacts facts = topology_facts_of(inputs, placement.is_one_host, group.size());
  std::vector<TorchCommBackend::AlgorithmRange> ranges;
  for (int i = 0; i < kOpNameCount; ++i) {
    const auto op = static_cast<OpName>(i);
    const auto operation = operation_of(op);
    if (!operation) continue;
    const size_t first = ranges.size();
    for (int64_t bytes = 0; bytes <= kLargestShown; bytes = std::max<int64_t>(1, bytes * 2)) {
      const Problem problem =
          problem_of(*operation, group.size(), bytes,
                     {.local_size = placement.local_size, .rank_order = requests.batch_invariant});
      const AlgorithmRequest request = requests.request_for(*operation);
      if (const auto* requested = schedule::find_algorithm(*operation, request.algorithm);
          requested != nullptr && !requested->unsupported_reason(problem).empty()) {
        ranges.push_back(
            {op, bytes, std::string(request.algorithm), 0,
             "requested, but it " + std::string(requested->unsupported_reason(problem))});
        break;
      }
      const auto chosen =
          select_algorithm(problem, {}, facts, inputs.shared_tuning.tuning, request);
      if (ranges.size() > first && ranges.back().algorithm == chosen.algorithm->name &&
          ranges.back().chunk_bytes == chosen.chunk)
        continue;
      ranges.push_back({.operation = op,
                        .bytes_from = bytes,
                        .algorithm = std::string(chosen.algorithm->name),
                        .chunk_bytes = chosen.chunk,
                        .why = std::string(format_reason(chosen.reason))});
      if (*operation == Operation::kBarrier) break;
    }
  }
  return ranges;
}

}  // namespace torch::comms::ctran
