#include "schedule/proof.hpp"

#include <algorithm>
#include <random>

namespace torch::comms::schedule {

std::string to_string(const Case& what) {
  const AlgorithmOptions& options = what.options;
  return std::string(operation_name(what.operation)) + ", " + std::to_string(what.size) +
         " ranks, count " + std::to_string(what.count) + (what.uneven ? " uneven" : "") +
         ", root " + std::to_string(what.root) + ", chunk " + std::to_string(options.chunk) +
         ", local size " + std::to_string(options.local_size) + ", rings " +
         std::to_string(options.rings);
}

namespace {

// Counts from 0 to twice `count`; the same for the same arguments.
std::vector<int64_t> uneven_offsets(int64_t count, int parts, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < parts; ++i)
    offsets.push_back(offsets.back() +
                      static_cast<int64_t>(random() % static_cast<uint64_t>(2 * count + 1)));
  return offsets;
}

// What rank `from` sends to rank `to` in an uneven all_to_all.
int64_t pair_count(int64_t count, int from, int to) {
  return (int64_t{from} * 7 + int64_t{to} * 3) % (2 * count + 1);
}

}  // namespace

Problems::Problems(const Case& what) {
  const int n = what.size;
  const auto borrowed = [&](std::vector<int64_t> offsets) {
    offsets_.push_back(std::move(offsets));
    return Blocks::from_offsets(offsets_.back());
  };
  const auto exchange = [&](int rank, bool sent) {
    if (!what.uneven) return Blocks::equal(what.count, n);
    std::vector<int64_t> offsets{0};
    for (int peer = 0; peer < n; ++peer)
      offsets.push_back(offsets.back() + (sent ? pair_count(what.count, rank, peer)
                                               : pair_count(what.count, peer, rank)));
    return borrowed(std::move(offsets));
  };
  offsets_.reserve(2 * static_cast<size_t>(n) + 1);
  const bool blocks =
      what.operation >= Operation::kGather && what.operation <= Operation::kReduceScatter;
  const Blocks common = !blocks        ? Blocks()
                        : !what.uneven ? Blocks::equal(what.count, n)
                                       : borrowed(uneven_offsets(what.count, n, 5));
  for (int rank = 0; rank < n; ++rank) {
    if (what.operation == Operation::kAllToAll)
      all_.push_back(
          all_to_all_problem(rank, exchange(rank, true), exchange(rank, false), what.options));
    else if (blocks)
      all_.push_back(block_problem(what.operation, rank, common, what.root, what.options));
    else
      all_.push_back(vector_problem(what.operation, rank, n, what.count, what.root, what.options));
  }
}

Source source_of(const Problems& problems, int rank, int64_t i) {
  const Problem& p = problems[rank];
  const auto block_of = [i](const Blocks& blocks) {
    int block = 0;
    while (blocks.begin(block + 1) <= i) ++block;
    return block;
  };
  switch (p.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
      return {true, 0, i};
    case Operation::kReduceScatter:
      return {true, 0, p.blocks.begin(rank) + i};
    case Operation::kScatter:
      return {false, p.root, p.blocks.begin(rank) + i};
    case Operation::kGather:
    case Operation::kAllGather: {
      const int block = block_of(p.blocks);
      return {false, block, i - p.blocks.begin(block)};
    }
    case Operation::kAllToAll: {
      const int from = block_of(p.receive_blocks);
      return {false, from, problems[from].blocks.begin(rank) + i - p.receive_blocks.begin(from)};
    }
    default:
      return {false, p.root, i};
  }
}

namespace {

// Sums in rank order, by index, made once.
class RankOrderSums {
 public:
  explicit RankOrderSums(const Problems& problems) {
    const Problem& p = problems[0];
    if (p.operation != Operation::kAllReduce && p.operation != Operation::kReduce &&
        p.operation != Operation::kReduceScatter)
      return;
    for (int64_t i = 0; i < p.count(); ++i) {
      sums_.push_back(leaf(0, i));
      for (int rank = 1; rank < p.size; ++rank) sums_.back() = add(sums_.back(), leaf(rank, i));
    }
  }
  const Cell& operator[](int64_t i) const { return sums_[static_cast<size_t>(i)]; }

 private:
  std::vector<Cell> sums_;
};

std::string wrong_output(const Algorithm& algorithm, const Problems& problems, const Report& report,
                         const RankOrderSums& sums) {
  for (int rank = 0; rank < problems.size(); ++rank) {
    const auto& output = report.outputs[static_cast<size_t>(rank)];
    for (size_t i = 0; i < output.size(); ++i) {
      const Source source = source_of(problems, rank, static_cast<int64_t>(i));
      const Cell want = source.all_ranks ? sums[source.index] : leaf(source.rank, source.index);
      const bool exact = algorithm.reduction_order != ReductionOrder::kFixed;
      if (exact ? output[i] != want : !output[i].written || output[i].sum != want.sum)
        return "output " + std::to_string(i) + " of rank " + std::to_string(rank) + " is wrong";
      if (problems[rank].operation == Operation::kAllReduce && output[i] != report.outputs[0][i])
        return "output " + std::to_string(i) + " of rank " + std::to_string(rank) +
               " was added in another order than on rank 0";
    }
  }
  return {};
}

// The largest measured cost of a rank, number by number.
Cost largest_cost(const std::vector<Cost>& measured) {
  Cost most;
  for (const Cost& one : measured)
    for (auto number : {&Cost::steps, &Cost::messages, &Cost::sent, &Cost::received, &Cost::reduced,
                        &Cost::scratch})
      most.*number = std::max(most.*number, one.*number);
  return most;
}

std::string to_string(const Cost& cost) {
  return "steps " + std::to_string(cost.steps) + ", messages " + std::to_string(cost.messages) +
         ", sent " + std::to_string(cost.sent) + ", received " + std::to_string(cost.received) +
         ", reduced " + std::to_string(cost.reduced) + ", scratch " + std::to_string(cost.scratch);
}

// Of the smaller blocks, while the larger ones need it.
bool last_chunk_is_empty(const Blocks& blocks, int64_t chunk) {
  return Chunks(blocks.smallest(), chunk).count() != Chunks(blocks.largest(), chunk).count();
}

std::string wrong_cost(const Algorithm& algorithm, const Case& what, const Problems& problems,
                       const Report& report) {
  std::vector<Cost> formulas;
  bool some_empty = what.uneven;
  for (int rank = 0; rank < problems.size(); ++rank) {
    formulas.push_back(algorithm.cost(problems[rank]));
    some_empty |= problems[rank].blocks.smallest() == 0 && what.operation != Operation::kBarrier;
    some_empty |= last_chunk_is_empty(problems[rank].blocks, what.options.chunk);
  }
  const Cost formula = largest_cost(formulas), measured = largest_cost(report.measured);
  Cost compared = measured;
  if (some_empty && measured.messages <= formula.messages) compared.messages = formula.messages;
  if (algorithm.is_cost_upper_bound &&
      what.count % (int64_t{what.size} * what.options.rings) != 0) {
    for (auto number : {&Cost::sent, &Cost::received, &Cost::reduced})
      if (measured.*number <= formula.*number &&
          measured.*number + 2 * what.options.rings >= formula.*number)
        compared.*number = formula.*number;
    if (measured.messages <= formula.messages) compared.messages = formula.messages;
  }
  if (compared != formula)
    return "the formula says " + to_string(formula) + ", paid was " + to_string(measured);
  if (!some_empty && report.idle_steps != 0 && what.size > 1)
    return std::to_string(report.idle_steps) + " steps in which nothing is sent";
  return {};
}

std::string disproof_of(const Algorithm& algorithm, const Case& what, uint64_t seed) {
  const Problems problems(what);
  std::vector<Program> programs;
  for (int rank = 0; rank < what.size; ++rank) {
    const std::string_view why_not = algorithm.unsupported_reason(problems[rank]);
    if (!why_not.empty()) return "cannot be used: " + std::string(why_not);
    programs.push_back(program_of(algorithm, problems[rank]));
  }
  const RankOrderSums sums(problems);
  std::vector<std::vector<Cell>> outputs;
  for (const bool in_place : {false, true}) {
    // Both kinds of delivery for either way, over the cases.
    const int credits = static_cast<int>((seed + (in_place ? 1 : 0)) % 3);
    const Report report = interpret(programs, {seed * 2 + (in_place ? 1 : 0), credits, in_place});
    const std::string under = in_place ? " (in place)" : " (out of place)";
    if (!report.failure.empty()) return report.failure + under;
    if (auto wrong = wrong_output(algorithm, problems, report, sums); !wrong.empty())
      return wrong + under;
    if (auto wrong = wrong_cost(algorithm, what, problems, report); !wrong.empty())
      return wrong + under;
    if (in_place && report.outputs != outputs) return "in place and out of place differ in bits";
    outputs = report.outputs;
  }
  return {};
}

}  // namespace

std::string disproof(const Algorithm& algorithm, const Case& what, uint64_t seed) {
  const std::string text = disproof_of(algorithm, what, seed);
  if (text.empty()) return {};
  return std::string(algorithm.name) + " " + to_string(what) + ", seed " + std::to_string(seed) +
         ": " + text;
}

}  // namespace torch::comms::schedule
