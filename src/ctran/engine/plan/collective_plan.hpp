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

// A range of one of the three buffers, in bytes of what travels.
struct BufferRange {
  schedule::Buffer buffer = schedule::Buffer::kInput;
  uint64_t begin = 0, bytes = 0;
};

// What becomes of a part of a message where it arrives.
struct ReceiveAction {
  BufferRange into;
  bool is_reduction = false;  // into = own op arriving, in the order that `first` says
  schedule::LeftOperand first = schedule::LeftOperand::kOwn;
  BufferRange own = {};
};

struct PlannedMessage {
  int peer = -1;
  uint32_t first = 0, count = 0;  // of StepPlan::sent or ::arrivals
  uint64_t bytes = 0;
  bool has_reduction = false;    // some of its arrivals do
  bool is_non_temporal = false;  // of one that is received: Plan::mark_non_temporal()
};

struct LocalAction {
  BufferRange into;
  uint32_t first = 0, count = 0;  // operands, of StepPlan::operands; one: a copy
  bool is_non_temporal = false;   // of a copy
};

// One step, resolved: one message a peer and direction, reductions of several operands at once.
struct StepPlan {
  std::vector<PlannedMessage> sends, receives;
  std::vector<BufferRange> sent, operands;
  std::vector<ReceiveAction> receive_actions;
  std::vector<LocalAction> local_actions;
  bool can_run_local_first =
      false;  // they touch nothing of the transfers: done while those are under way
  void clear() noexcept;
};

// How a plan adds. Sums of a dtype with a wider accumulator are rounded once, whatever the
// algorithm, so their bits depend on the order of addition alone:
// - DirectResult algorithms (one_shot, two_shot, direct) have all operands of a sum in one place:
// added
//   at once by NcclReduction::combine_all().
// - In all others partial sums travel: inputs are widened to a staging buffer first, everything
//   travels wide, and results are settled at the end. PREMUL_SUM of such dtypes always does.
// AVG divides at the end, by way of either, or of the result where the dtype is its own
// accumulator. PREMUL_SUM multiplies a copy of the input first.
struct PlannedReduction {
  std::optional<Reduction> reduction = {};  // none: nothing is added
  bool is_single_pass = false;
  bool is_wide = false;
  bool has_factor = false;
  bool has_final_division = false;
};

// An operation of a group, without its memory: shared by all calls that look alike.
class CollectivePlan {
 public:
  // What is known of the group.
  struct GroupLayout {
    int rank = 0, size = 1;
    bool is_one_host = true;
    int local_size = 1;
  };
  // Throws CommError(kInvalidArgument, kUnsupported, kOutOfRange) for a call that cannot be.
  CollectivePlan(const EngineCall& call, const GroupLayout& place, const AlgorithmChooser& choose);

  bool matches(const EngineCall& call) const noexcept;

  const schedule::Problem& problem() const noexcept { return problem_; }
  const schedule::Algorithm& algorithm() const noexcept { return *algorithm_; }
  const PlannedReduction& planned_reduction() const noexcept { return reduction_; }
  const PremulFactor& factor() const noexcept { return key_.factor; }
  int64_t steps() const noexcept { return steps_; }
  // Of an element as the caller has it, and as it travels.
  uint32_t element_bytes() const noexcept { return key_.element_bytes; }
  uint32_t wire_element_bytes() const noexcept { return wire_element_bytes_; }
  uint64_t input_bytes() const noexcept { return input_bytes_; }
  uint64_t output_bytes() const noexcept { return output_bytes_; }
  uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  uint64_t signature() const noexcept { return signature_; }  // Fingerprint::signature()
  // Each rank knows its own counts alone, which the fingerprint says nothing of.
  bool has_own_counts() const noexcept {
    return problem_.operation == schedule::Operation::kAllToAll && fingerprint_.count < 0;
  }

  // One sum a rank's element, of what travels: as `addition` says.
  void reduce(void* into, std::span<const void* const> operands, uint64_t bytes) const noexcept;

  // Step t: kept for small plans, else written to `own`.
  const StepPlan& step(int64_t t, StepPlan& own, schedule::Step& memory) const;
  bool has_cached_steps() const noexcept { return !cached_steps_.empty(); }

 private:
  void choose_algorithm(const EngineCall& call, const GroupLayout& place,
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

  EngineCall key_;  // without memory; its blocks refer to the two below
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

// The last plans of a group. Threads: one at a time.
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
