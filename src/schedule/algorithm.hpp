#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schedule/action.hpp"
#include "schedule/problem.hpp"

// Collective algorithms as pure functions: no state, no I/O, no clock. Every rank asks for its own
// steps, one at a time, and any step of any rank can be asked for by anyone.
namespace torch::comms::schedule {

// In which order an algorithm adds. Either way all ranks and all runs get the same bits.
enum class ReductionOrder : uint8_t {
  kNone,       // it adds nothing
  kRankOrder,  // ((x0 + x1) + x2) + ...: the bits do not depend on count, chunk or root
  kFixed,  // an order of its own, fixed by size, count, root, options and the element's position
};

// What the dearest rank pays, each number for itself: the largest over all ranks, in elements.
// Exact, but for messages where blocks or chunks are empty: an empty message is not sent. The cost
// of an all_to_all with given counts is this rank's own, for no rank knows more.
struct Cost {
  int64_t steps = 0;
  int64_t messages = 0;  // sent
  int64_t sent = 0;
  int64_t received = 0;
  int64_t reduced = 0;  // additions
  int64_t scratch = 0;

  friend bool operator==(const Cost&, const Cost&) = default;
};

struct Algorithm {
  Operation operation = Operation::kBarrier;
  std::string_view name;     // unique in its operation: "ring"
  std::string_view summary;  // one line: what it does and when it is good
  std::string_view source;   // the paper it is from, or what it is put together from
  ReductionOrder reduction_order = ReductionOrder::kNone;
  std::string_view order_text = {};  // of addition, in words
  // Rank r does what rank 0 does, with every peer r further around the ring, and as much of it when
  // all blocks are equal: who looks at one rank has seen them all.
  bool is_rotation_invariant = false;
  // credit_cost() may be a little more than what is paid, unless everything can be cut evenly.
  bool is_cost_upper_bound = false;

  // "" when this algorithm can do `problem`, else what is missing, to go after "ring: ". All ranks
  // of an operation get the same answer.
  std::string_view unsupported_reason(const Problem& problem) const noexcept;

  // The four below are for problems it can do. `steps` is equal on all ranks.
  int64_t steps(const Problem& problem) const;
  // Replaces `out` by step `t`, 0 <= t < steps(problem), of problem.rank. O(actions of the step).
  void step(const Problem& problem, int64_t t, Step& out) const;
  Cost cost(const Problem& problem) const;
  // Elements of scratch that problem.rank needs; the largest over all ranks is
  // credit_cost().scratch.
  int64_t scratch(const Problem& problem) const;

  // What an algorithm's own file says, for at least two ranks; ask through the methods above.
  struct AlgorithmFunctions {
    std::string_view (*unsupported_reason)(const Problem&) =
        nullptr;  // none: any problem of its operation
    int64_t (*steps)(const Problem&) = nullptr;
    void (*step)(const Problem&, int64_t t, Step&) = nullptr;
    Cost (*cost)(const Problem&) = nullptr;        // without `steps`
    int64_t (*scratch)(const Problem&) = nullptr;  // none: 0
  } functions = {};
};

// All of them, by operation.
std::span<const Algorithm* const> algorithms() noexcept;

// nullptr when there is none of this name.
const Algorithm* find_algorithm(Operation operation, std::string_view name) noexcept;

}  // namespace torch::comms::schedule
