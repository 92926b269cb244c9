#include "schedule/rank_memory.hpp"

#include <algorithm>

namespace torch::comms::schedule {

std::string to_string(const Range& range) {
  static constexpr const char* kNames[] = {"input", "output", "scratch"};
  return std::string(kNames[static_cast<size_t>(range.buffer)]) + "[" +
         std::to_string(range.begin) + ", " + std::to_string(range.begin + range.count) + ")";
}

namespace {

// Of in-place operations: how far the smaller buffer begins in the bigger one.
bool is_shared(const Problem& p) {
  const bool root = p.rank == p.root;
  switch (p.operation) {
    case Operation::kAllReduce:
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      return true;
    case Operation::kReduce:
    case Operation::kGather:
    case Operation::kScatter:
      return root;
    default:
      return false;
  }
}

int64_t offset(const Problem& p) {
  const bool whole = p.operation == Operation::kAllReduce || p.operation == Operation::kReduce;
  return whole ? 0 : p.blocks.begin(p.rank);
}

}  // namespace

RankMemory::RankMemory(const Problem& problem, int64_t scratch, bool in_place)
    : problem_(&problem), shared_(in_place && is_shared(problem)) {
  auto& [input, output, spare] = places_;
  input.count = problem.input_count();
  output.count = problem.output_count();
  spare = {input.count + output.count, scratch};
  if (!shared_)
    output.begin = input.count;
  else if (input.count <= output.count)
    input.begin = offset(problem);
  else
    output.begin = offset(problem);
  cells_.resize(static_cast<size_t>(spare.begin + spare.count));
  for (int64_t i = 0; i < input.count; ++i) cells_[input.begin + i] = leaf(problem.rank, i);
  if (problem.operation == Operation::kBroadcast && problem.rank == problem.root)
    for (int64_t i = 0; i < output.count; ++i) cells_[output.begin + i] = leaf(problem.rank, i);
}

int64_t RankMemory::at(const Range& range) const {
  const Place& place = places_[static_cast<size_t>(range.buffer)];
  if (range.begin < 0 || range.count < 0 || range.begin + range.count > place.count)
    throw BrokenRule(to_string(range) + " is outside of a buffer of " +
                     std::to_string(place.count));
  return place.begin + range.begin;
}

std::span<const Cell> RankMemory::read(const Range& range) const {
  const std::span<const Cell> cells{cells_.data() + at(range), size_of(range)};
  for (size_t i = 0; i < cells.size(); ++i)
    if (!cells[i].written)
      throw BrokenRule("reads " +
                       to_string({range.buffer, range.begin + static_cast<int64_t>(i), 1}) +
                       ", which was never written");
  return cells;
}

void RankMemory::check_transfers(std::span<const Action> transfers) const {
  struct Access {
    int64_t begin, end;
    bool writes;
    Range range;
  };
  std::vector<Access> accesses;
  accesses.reserve(2 * transfers.size());
  const auto note = [&](const Range& range, bool writes) {
    const int64_t begin = at(range);
    if (range.count > 0) accesses.push_back({begin, begin + range.count, writes, range});
  };
  for (const Action& action : transfers) {
    if (action.kind == ActionKind::kSend) note(action.from, false);
    if (action.kind == ActionKind::kReceive) note(action.into, true);
    if (action.kind != ActionKind::kReceiveReduce) continue;
    check_operands(action);
    note(action.into, true);
    if (at(action.from) != at(action.into)) note(action.from, false);
  }
  std::sort(accesses.begin(), accesses.end(),
            [](const Access& a, const Access& b) { return a.begin < b.begin; });
  const Access* written = nullptr;  // of those before, the one that reaches farthest
  const Access* touched = nullptr;
  for (const Access& access : accesses) {
    const Access* before = access.writes ? touched : written;
    if (before != nullptr && before->end > access.begin)
      throw BrokenRule("transfers of one step meet in " + to_string(before->range) + " and " +
                       to_string(access.range));
    if (touched == nullptr || access.end > touched->end) touched = &access;
    if (access.writes && (written == nullptr || access.end > written->end)) written = &access;
  }
}

void RankMemory::check_operands(const Action& action) const {
  const auto check = [&](const Range& operand) {
    if (operand.count != action.into.count)
      throw BrokenRule(to_string(operand) + " and " + to_string(action.into) + " differ in size");
    const int64_t distance = std::abs(at(operand) - at(action.into));
    if (distance != 0 && distance < operand.count)
      throw BrokenRule(to_string(operand) + " overlaps its target " + to_string(action.into));
  };
  check(action.from);
  if (action.kind == ActionKind::kReduce) check(action.other);
}

void RankMemory::check_input() const {
  const Place& input = places_[0];
  for (int64_t i = 0; i < input.count && !shared_; ++i)
    if (cells_[input.begin + i] != leaf(problem_->rank, i))
      throw BrokenRule("input " + std::to_string(i) + " was written to");
}

std::vector<Cell> RankMemory::output() const {
  const auto begin = cells_.begin() + places_[1].begin;
  return {begin, begin + places_[1].count};
}

}  // namespace torch::comms::schedule
