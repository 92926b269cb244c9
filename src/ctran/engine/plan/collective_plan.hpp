#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ctran/engine/control/collective_fingerprint.hpp"
#include "ctran/engine/engine_call.hpp"
#include "ctran/engine/plan/algorithm_chooser.hpp"

namespace torch::comms::ctran {

// A range of one of the three buffers, in bytes of the wire format.
struct BufferRange {
  schedule::Buffer buffer = schedule::Buffer::kInput;
  uint64_t begin = 0, bytes = 0;
};

// What to do with a part of a message when it arrives.
struct ReceiveAction {
  BufferRange into;
  bool is_reduction = false;  // into = own op incoming, in the order that `first` gives
  schedule::LeftOperand first = schedule::LeftOperand::kOwn;
  BufferRange own = {};
};

struct PlannedMessage {
  int peer = -1;
  uint32_t first = 0, count = 0;  // a range of StepPlan::sent or StepPlan::receive_actions
  uint64_t bytes = 0;
  bool has_reduction = false;    // some of its receive actions reduce
  bool is_non_temporal = false;  // of a receive: see CollectivePlan::mark_non_temporal()
};

struct LocalAction {
  BufferRange into;
  uint32_t first = 0, count = 0;  // a range of StepPlan::operands; one operand: a copy
  bool is_non_temporal = false;   // copies only
};

// One step with all ranges resolved: one message per peer and direction, and reductions of several
// operands at once.
struct StepPlan {
  std::vector<PlannedMessage> sends, receives;
  std::vector<BufferRange> sent, operands;
  std::vector<ReceiveAction> receive_actions;
  std::vector<LocalAction> local_actions;
  // The local actions touch no memory of the transfers, so they run while those are in flight.
  bool can_run_local_first = false;
  void clear() noexcept;
};

// How a plan adds. Sums of a dtype with a wider accumulator are rounded once, whatever the
// algorithm. So their bits depend only on the order of addition:
// - Algorithms that have all operands of a sum in one place (one_shot, two_shot, direct) add them
//   at once with Reduction::combine_all().
// - In all other algorithms partial sums travel. The inputs are first widened into a staging
//   buffer, all messages are wide, and Reduction::finish() writes the results. PREMUL_SUM of such
//   dtypes always works this way.
//
// AVG divides at the end: in combine_all() or finish(), or on the result if the dtype is its own
// accumulator. PREMUL_SUM first multiplies a copy of the input.
struct PlannedReduction {
  std::optional<Reduction> reduction = {};  // none: the operation does not reduce
  bool is_single_pass = false;
  bool is_wide = false;
  bool has_factor = false;
  bool has_final_division = false;
};

// An operation of a group without its memory: algorithm, steps and sizes. All calls with the same
// parameters share one plan.
class CollectivePlan {
 public:
  // The parameters of the group that a plan depends on.
  struct GroupLayout {
    int rank = 0, size = 1;
    bool is_one_host = true;
    int local_size = 1;
  };
  // Throws: CommError(kInvalidArgument, kUnsupported, kTooLarge) for an invalid call.
  CollectivePlan(const EngineCall& call, const GroupLayout& layout, const AlgorithmChooser& choose);

  bool matches(const EngineCall& call) const noexcept;

  const schedule::Problem& problem() const noexcept { return problem_; }
  const schedule::Algorithm& algorithm() const noexcept { return *algorithm_; }
  const PlannedReduction& planned_reduction() const noexcept { return reduction_; }
  const PremulFactor& factor() const noexcept { return key_.factor; }
  int64_t steps() const noexcept { return steps_; }
  // Bytes of an element: in the caller's buffers, and on the wire.
  uint32_t element_bytes() const noexcept { return key_.element_bytes; }
  uint32_t wire_element_bytes() const noexcept { return wire_element_bytes_; }
  uint64_t input_bytes() const noexcept { return input_bytes_; }
  uint64_t output_bytes() const noexcept { return output_bytes_; }
  uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  // Fingerprint::hash_without_sequence()
  uint64_t signature() const noexcept { return signature_; }
  // Returns: whether this is an all_to_all with per-rank counts, which the fingerprint does not
  // contain.
  bool has_own_counts() const noexcept {
    return problem_.operation == schedule::Operation::kAllToAll && fingerprint_.count < 0;
  }

  // Reduces `bytes` of the operands, in the wire format, as planned_reduction() says.
  void reduce(void* into, std::span<const void* const> operands, uint64_t bytes) const noexcept;

  // Returns step t: the cached one of a small plan, else one that it writes to `own`. `memory` is
  // scratch of the caller.
  const StepPlan& step(int64_t t, StepPlan& own, schedule::Step& memory) const;
  bool has_cached_steps() const noexcept { return !cached_steps_.empty(); }

 private:
  void choose_algorithm(const EngineCall& call, const GroupLayout& layout,
                        const AlgorithmChooser& choose);
  void plan_reduction();
  void write_step(const schedule::Step& step, StepPlan& out) const;
  void write_transfers(std::span<const schedule::Action> transfers, StepPlan& out) const;
  void write_locals(std::span<const schedule::Action> locals, StepPlan& out) const;
  void mark_non_temporal();
  bool is_result(const BufferRange& written, size_t step) const noexcept;
  void reduce_on_arrival(StepPlan& out) const;
  static bool are_local_actions_independent(const StepPlan& out) noexcept;
  BufferRange buffer_range(const schedule::Range& range) const noexcept;

  EngineCall key_;  // without buffers; its blocks refer to the next two fields
  std::vector<int64_t> offsets_, arriving_offsets_;
  schedule::Problem problem_;
  const schedule::Algorithm* algorithm_ = nullptr;
  PlannedReduction reduction_;
  int64_t steps_ = 0;
  uint32_t wire_element_bytes_ = 1;
  uint64_t input_bytes_ = 0, output_bytes_ = 0, scratch_bytes_ = 0;
  Fingerprint fingerprint_;
  uint64_t signature_ = 0;
  std::vector<StepPlan> cached_steps_;
};

// The plans that a group has used last, at most 8.
// Threads: one at a time.
class CollectivePlanCache {
 public:
  std::shared_ptr<const CollectivePlan> find(const EngineCall& call) noexcept;
  void add(std::shared_ptr<const CollectivePlan> plan);

 private:
  static constexpr size_t kMaxPlans = 8;
  std::vector<std::shared_ptr<const CollectivePlan>> plans_;
  size_t last_ = 0, oldest_ = 0;
};

}  // namespace torch::comms::ctran
