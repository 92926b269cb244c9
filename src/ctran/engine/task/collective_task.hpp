#pragma once

#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ctran/engine/plan/collective_plan.hpp"
#include "ctran/engine/plan/io_vector.hpp"
#include "ctran/engine/task/scratch_pool.hpp"
#include "ctran/engine/task/task.hpp"

namespace torch::comms::ctran {

class FastPath;

// Runs a collective: its plan, step by step. Keeps its allocated memory for the next call.
class CollectiveTask final : public Task {
 public:
  // Sets the call up. `group` must be set, and `plan` be a plan of it. Copies the lists that the
  // call lends.
  // Throws: CommError(kInvalidArgument) if a buffer has another size than the plan.
  void prepare(const EngineCall& call, std::shared_ptr<const CollectivePlan> plan);

  // Sets up a collective among some members of the group, given by their ranks in it. It runs on a
  // stream of its own, concurrently with the group's other collectives. All of these members must
  // pass the same list.
  void prepare(const EngineCall& call, std::shared_ptr<const CollectivePlan> plan,
               std::vector<int> members, uint32_t stream);

  // Makes begin() continue a collective that a fast path has begun. Call it after prepare();
  // begin() must follow before the fast path is used again.
  void resume_from(const FastPath& begun) noexcept { resumed_from_ = &begun; }

  // Takes the plan of the task's last call, if that call was in the group with this base; else
  // nullptr.
  std::shared_ptr<const CollectivePlan> reuse_plan(uint32_t base) noexcept {
    return base_ == base ? std::move(plan_) : nullptr;
  }

  TaskStatus begin() override;
  TaskStatus advance() override;
  void close() noexcept override;
  std::string format_pending() const override;
  std::string format_call() const override;
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  // Valid between begin() and completion.
  const CollectivePlan& plan() const noexcept { return *plan_; }

 private:
  // Reduces a message as its bytes arrive.
  class ReceiveReducer final : public transport::ReceiveSink {
   public:
    void bind(const CollectiveTask& task, const PlannedMessage& message) noexcept {
      task_ = &task;
      message_ = &message;
    }
    void consume(uint64_t offset, ConstBytes chunk) noexcept override;

   private:
    const CollectiveTask* task_ = nullptr;
    const PlannedMessage* message_ = nullptr;
  };

  const IoVector& buffer_of(schedule::Buffer buffer) const noexcept {
    return buffers_[static_cast<size_t>(buffer)];
  }
  int group_rank(int peer) const noexcept {
    return members_.empty() ? peer : members_[static_cast<size_t>(peer)];
  }
  void stage_inputs();
  void begin_step();
  void post();
  bool is_transferred(size_t index) const noexcept;
  void post_receives();
  void post_send(size_t index, std::span<const ConstBytes> pieces);
  void gather_io_vectors();
  void run_local_actions() const;
  void copy(const BufferRange& into, const BufferRange& from, bool is_non_temporal) const;
  void reduce(const BufferRange& into, std::span<const BufferRange> operands) const;
  void apply_received(const ReceiveAction& arrival, uint64_t offset, ConstBytes chunk) const;
  void write_results() const;
  bool has_finished_transfers();
  bool can_never_complete();
  bool check(size_t index);

  std::shared_ptr<const CollectivePlan> plan_;
  uint32_t base_ = 0;         // of the plan's group; 0: a subset of members
  std::vector<int> members_;  // empty: all members
  uint32_t stream_ = 0;       // offset from the group's base
  Fingerprint fingerprint_;
  uint32_t tag_ = 0;
  std::array<IoVector, 3> buffers_;  // input, output and scratch in the wire format
  IoVector result_;                  // the caller's output if it is not buffers_[1]
  ScratchPool::ScratchBlock block_;  // staging memory, then scratch

  int64_t step_number_ = 0;
  const StepPlan* step_ = nullptr;
  StepPlan own_step_;
  schedule::Step memory_;
  std::deque<transport::Request> requests_;  // receives, then sends
  std::deque<ReceiveReducer> receive_reducers_;
  std::vector<Bytes> into_;
  std::vector<ConstBytes> from_;
  std::vector<size_t> ends_;  // per message, its end in into_ or from_
  size_t posted_ = 0, finished_ = 0;
  unsigned polls_ = 0;
  const FastPath* resumed_from_ = nullptr;  // the fast path that has begun this collective
  uint64_t transferred_ = 0;  // per transfer of the step: the fast path has completed it
};

}  // namespace torch::comms::ctran
