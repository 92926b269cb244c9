#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/engine/pieces.hpp"
#include "ctran/engine/plan.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

class Membership;

// A collective of small messages without a task and without requests: a plan whose steps, links
// and scratch memory have been looked up before, for calls one after the other that look alike.
// What it has begun a task can go on with: CollectiveTask::go_on(). With the engine's lock.
class Express {
 public:
  static constexpr size_t kMostTransfers = 64;  // of a step: bits of reset()

  // nullptr: the plan is not made for it, or a link is not. Throws as Engine::set().
  static std::unique_ptr<Express> make(const Membership& group, std::shared_ptr<const Plan> plan);
  ~Express();

  const std::shared_ptr<const Plan>& plan() const noexcept { return plan_; }
  // Takes the call's buffers, for messages with this tag. False: they do not suit it.
  bool begin(const Call& call, uint32_t tag);
  // Moves what can be moved without waiting; true if everything is done.
  bool move();

  // Where it is: the step, which of its transfers (receives, then sends) are done, and scratch.
  int64_t step() const noexcept { return static_cast<int64_t>(step_); }
  uint64_t moved() const noexcept { return moved_; }
  ConstBytes scratch() const noexcept { return scratch_; }

 private:
  struct Transfer {
    transport::Transport* link;
    int peer;  // in the family
    Part part;
    const Arrival* arrival;  // of a receive
  };
  struct Step {
    const StepPlan* plan;
    std::vector<Transfer> receives, sends;
  };
  class Adder;

  Express(const Membership& group, std::shared_ptr<const Plan> plan);
  bool resolve(const Membership& group);
  bool is_whole(const Part& part) const noexcept;
  std::byte* at(const Part& part) const noexcept {
    const auto buffer = static_cast<size_t>(part.buffer);
    if (one_piece_) return bases_[buffer] + part.begin;
    return part.bytes == 0 ? nullptr : places_[buffer].from(part.begin).data();
  }
  bool take(const Call& call);
  void send(const Step& step);
  bool receive(const Step& step);
  void run_locals(const StepPlan& step) const;

  std::shared_ptr<const Plan> plan_;
  uint32_t stream_;
  std::vector<Step> steps_;
  std::vector<std::byte> scratch_;
  bool one_piece_ = true;  // each buffer is: at its base; else as in places_
  std::array<std::byte*, 3> bases_{};
  std::array<Pieces, 3> places_;
  uint32_t tag_ = 0;
  size_t step_ = 0, received_ = 0, sent_ = 0;
  uint64_t moved_ = 0;
};

}  // namespace torch::comms::ctran
