#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/engine/plan/collective_plan.hpp"
#include "ctran/engine/plan/io_vector.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

class GroupState;

// Runs a collective of small messages without a task and without requests, for repeated calls with
// equal parameters. The steps, links and scratch memory of the plan have been looked up before. A
// task can continue a collective that the fast path has begun: CollectiveTask::resume_from().
// Threads: the caller holds the engine's lock.
class FastPath {
 public:
  static constexpr size_t kMostTransfers = 64;  // of one step: bits of transferred()

  // Returns: nullptr if the plan or one of its links does not suit a fast path.
  // Throws: like Engine::link_to().
  static std::unique_ptr<FastPath> create(const GroupState& group,
                                          std::shared_ptr<const CollectivePlan> plan);
  ~FastPath();

  const std::shared_ptr<const CollectivePlan>& plan() const noexcept { return plan_; }
  // Starts a call, whose messages have this tag.
  // Returns: false if the call's buffers do not suit the plan.
  bool begin(const EngineCall& call, uint32_t tag);
  // Moves what can be moved without waiting.
  // Returns: true if the collective is complete.
  bool advance();

  // The progress of the call: the step, which of its transfers (receives, then sends) are done, and
  // the scratch memory.
  int64_t step() const noexcept { return static_cast<int64_t>(step_); }
  uint64_t transferred() const noexcept { return transferred_; }
  ConstBytes scratch() const noexcept { return scratch_; }

 private:
  struct FastPathTransfer {
    transport::Transport* link;
    int peer;  // rank in the context
    BufferRange part;
    const ReceiveAction* arrival;  // receives only
  };
  struct FastPathStep {
    const StepPlan* plan;
    std::vector<FastPathTransfer> receives, sends;
  };
  class FastPathReducer;

  FastPath(const GroupState& group, std::shared_ptr<const CollectivePlan> plan);
  bool resolve(const GroupState& group);
  bool is_contiguous(const BufferRange& part) const noexcept;
  std::byte* address_of(const BufferRange& part) const noexcept {
    const auto buffer = static_cast<size_t>(part.buffer);
    if (has_contiguous_buffers_) return bases_[buffer] + part.begin;
    return part.bytes == 0 ? nullptr : buffers_[buffer].from(part.begin).data();
  }
  bool bind_buffers(const EngineCall& call);
  void send(const FastPathStep& step);
  bool receive(const FastPathStep& step);
  void run_local_actions(const StepPlan& step) const;

  std::shared_ptr<const CollectivePlan> plan_;
  uint32_t stream_;
  std::vector<FastPathStep> steps_;
  std::vector<std::byte> scratch_;
  bool has_contiguous_buffers_ = true;  // each buffer is one piece, at its base; else see buffers_
  std::array<std::byte*, 3> bases_{};
  std::array<IoVector, 3> buffers_;
  uint32_t tag_ = 0;
  size_t step_ = 0, received_ = 0, sent_ = 0;
  uint64_t transferred_ = 0;
};

}  // namespace torch::comms::ctran
