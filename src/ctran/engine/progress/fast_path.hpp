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

// A collective of small messages without a task and without requests: a plan whose steps, links
// and scratch memory have been looked up before, for calls one after the other that look alike.
// What it has begun a task can go on with: CollectiveTask::go_on(). With the engine's lock.
class FastPath {
 public:
  static constexpr size_t kMostTransfers = 64;  // of a step: bits of transferred()

  // nullptr: the plan is not made for it, or a link is not. Throws as Engine::link_to().
  static std::unique_ptr<FastPath> create(const GroupState& group,
                                          std::shared_ptr<const CollectivePlan> plan);
  ~FastPath();

  const std::shared_ptr<const CollectivePlan>& plan() const noexcept { return plan_; }
  // Takes the call's buffers, for messages with this tag. False: they do not suit it.
  bool begin(const EngineCall& call, uint32_t tag);
  // Moves what can be moved without waiting; true if everything is done.
  bool advance();

  // Where it is: the step, which of its transfers (receives, then sends) are done, and scratch.
  int64_t step() const noexcept { return static_cast<int64_t>(step_); }
  uint64_t transferred() const noexcept { return transferred_; }
  ConstBytes scratch() const noexcept { return scratch_; }

 private:
  struct FastPathTransfer {
    transport::Transport* link;
    int peer;  // in the family
    BufferRange part;
    const ReceiveAction* arrival;  // of a receive
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
  bool has_contiguous_buffers_ = true;  // each buffer is: at its base; else as in places_
  std::array<std::byte*, 3> bases_{};
  std::array<IoVector, 3> buffers_;
  uint32_t tag_ = 0;
  size_t step_ = 0, received_ = 0, sent_ = 0;
  uint64_t transferred_ = 0;
};

}  // namespace torch::comms::ctran
