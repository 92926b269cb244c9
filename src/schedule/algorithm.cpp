#include "schedule/algorithm.hpp"

namespace torch::comms::schedule {
namespace {

bool point_to_point(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kReceive;
}

// A rank that is alone has its result: it only may have to be moved.
bool alone(const Problem& problem) {
  return problem.size == 1 && !point_to_point(problem.operation);
}

}  // namespace

std::string_view Algorithm::why_not(const Problem& problem) const noexcept {
  if (problem.operation != operation) return "does another operation";
  if (problem.options.rank_order && addition == Addition::kFixed)
    return "does not add in rank order";
  if (alone(problem) || rules.why_not == nullptr) return {};
  return rules.why_not(problem);
}

int64_t Algorithm::steps(const Problem& problem) const {
  return alone(problem) ? 1 : rules.steps(problem);
}

void Algorithm::step(const Problem& problem, int64_t t, Step& out) const {
  out.clear();
  if (!alone(problem)) return rules.step(problem, t, out);
  out.copy({Buffer::kInput, 0, problem.input_count()}, {Buffer::kOutput, 0, problem.input_count()});
}

Cost Algorithm::cost(const Problem& problem) const {
  if (alone(problem)) return {.steps = 1};
  Cost cost = rules.cost(problem);
  cost.steps = rules.steps(problem);
  return cost;
}

int64_t Algorithm::scratch(const Problem& problem) const {
  return alone(problem) || rules.scratch == nullptr ? 0 : rules.scratch(problem);
}

const Algorithm* find_algorithm(Operation operation, std::string_view name) noexcept {
  for (const Algorithm* algorithm : algorithms())
    if (algorithm->operation == operation && algorithm->name == name) return algorithm;
  return nullptr;
}

}  // namespace torch::comms::schedule
