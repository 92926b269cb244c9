#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schedule/action.hpp"
#include "schedule/problem.hpp"

// Collective algorithms as pure functions: no state, no I/O, no clock. Every rank computes its own
// steps, one at a time. A caller that knows the problem of another rank can compute any step of
// that rank.
namespace torch::comms::schedule {

// The order in which an algorithm adds. With each of these orders, all ranks and all runs get the
// same bits.
enum class ReductionOrder : uint8_t {
  kNone,       // the algorithm does not add
  kRankOrder,  // ((x0 + x1) + x2) + ...: the bits do not depend on count, chunk or root
  kFixed,  // another order, which depends on size, count, root, options and the element's position
};

// The cost of an algorithm. Each number is the largest over all ranks. It is exact, except for
// messages of empty blocks or chunks, which are not sent. See also is_cost_upper_bound. For an
// all_to_all with per-rank counts it is the cost of this rank alone, because no rank knows more.
// Units: elements, except `steps` and `messages`.
struct Cost {
  int64_t steps = 0;
  int64_t messages = 0;  // messages sent
  int64_t sent = 0;
  int64_t received = 0;
  int64_t reduced = 0;  // additions
  int64_t scratch = 0;

  friend bool operator==(const Cost&, const Cost&) = default;
};

struct Algorithm {
  Operation operation = Operation::kBarrier;
  std::string_view name;     // unique in its operation: "ring"
  std::string_view summary;  // one line: what the algorithm does and when it is good
  std::string_view source;   // the paper that describes it, or the algorithms that it combines
  ReductionOrder reduction_order = ReductionOrder::kNone;
  std::string_view order_text = {};  // the order of addition, in words
  // Rank r does what rank 0 does, with every peer shifted by r around the ring; if all blocks are
  // equal, also with the same sizes. So the steps of one rank show those of all ranks.
  bool is_rotation_invariant = false;
  // cost() may be slightly more than the real cost, unless all data can be split evenly.
  bool is_cost_upper_bound = false;

  // Returns: "" if this algorithm can do `problem`, else what is missing, as a text to follow
  // "ring: ". All ranks of an operation get the same answer.
  std::string_view unsupported_reason(const Problem& problem) const noexcept;

  // The next four functions require a problem that this algorithm can do. steps() is equal on all
  // ranks.
  int64_t steps(const Problem& problem) const;
  // Replaces `out` with step `t` of problem.rank, 0 <= t < steps(problem). The time is O(actions of
  // the step).
  void step(const Problem& problem, int64_t t, Step& out) const;
  Cost cost(const Problem& problem) const;
  // Returns: elements of scratch that problem.rank needs. The largest over all ranks is
  // cost().scratch.
  int64_t scratch(const Problem& problem) const;

  // The functions that an algorithm's file defines, for at least two ranks. Callers use the methods
  // above instead.
  struct AlgorithmFunctions {
    // nullptr: any problem of its operation.
    std::string_view (*unsupported_reason)(const Problem&) = nullptr;
    int64_t (*steps)(const Problem&) = nullptr;
    void (*step)(const Problem&, int64_t t, Step&) = nullptr;
    Cost (*cost)(const Problem&) = nullptr;        // without Cost::steps
    int64_t (*scratch)(const Problem&) = nullptr;  // nullptr: 0
  } functions = {};
};

// Returns: all algorithms; those of one operation follow each other.
std::span<const Algorithm* const> algorithms() noexcept;

// Returns: nullptr if no algorithm of the operation has this name.
const Algorithm* find_algorithm(Operation operation, std::string_view name) noexcept;

}  // namespace torch::comms::schedule
