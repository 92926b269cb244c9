#include "schedule/algorithm.hpp"

namespace torch::comms::schedule {
namespace {

bool point_to_point(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kReceive;
}

// Whether the rank is the only one: it has its result, which at most has to be copied.
bool alone(const Problem& problem) {
  return problem.size == 1 && !point_to_point(problem.operation);
}

}  // namespace

std::string_view Algorithm::unsupported_reason(const Problem& problem) const noexcept {
  if (problem.operation != operation) return "does another operation";
  if (problem.options.rank_order && reduction_order == ReductionOrder::kFixed)
    return "does not add in rank order";
  if (alone(problem) || functions.unsupported_reason == nullptr) return {};
  return functions.unsupported_reason(problem);
}

int64_t Algorithm::steps(const Problem& problem) const {
  return alone(problem) ? 1 : functions.steps(problem);
}

void Algorithm::step(const Problem& problem, int64_t t, Step& out) const {
  out.clear();
  if (!alone(problem)) return functions.step(problem, t, out);
  out.copy({Buffer::kInput, 0, problem.input_count()}, {Buffer::kOutput, 0, problem.input_count()});
}

Cost Algorithm::cost(const Problem& problem) const {
  if (alone(problem)) return {.steps = 1};
  Cost cost = functions.cost(problem);
  cost.steps = functions.steps(problem);
  return cost;
}

int64_t Algorithm::scratch(const Problem& problem) const {
  return alone(problem) || functions.scratch == nullptr ? 0 : functions.scratch(problem);
}

const Algorithm* find_algorithm(Operation operation, std::string_view name) noexcept {
  for (const Algorithm* algorithm : algorithms())
    if (algorithm->operation == operation && algorithm->name == name) return algorithm;
  return nullptr;
}

}  // namespace torch::comms::schedule
