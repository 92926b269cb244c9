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

// A collective: runs its plan step by step. Keeps its memory for the next call.
class CollectiveTask final : public Task {
 public:
  // In `group`, whose plan it is. Copies what the call lends. Throws CommError(kInvalidArgument)
  // for buffers of another size.
  void prepare(const EngineCall& call, std::shared_ptr<const CollectivePlan> plan);

  // The same among some members of the group alone, by their ranks in it, on a stream of their own
  // and beside the group's other collectives. All of them name the same ones.
  void prepare(const EngineCall& call, std::shared_ptr<const CollectivePlan> plan,
               std::vector<int> members, uint32_t stream);

  // Between prepare() and begin(), which is at once: some of it has been done there.
  void resume_from(const FastPath& begun) noexcept { resumed_from_ = &begun; }

  // The plan of the last call, if that was in the group with this base.
  std::shared_ptr<const CollectivePlan> reuse_plan(uint32_t base) noexcept {
    return base_ == base ? std::move(plan_) : nullptr;
  }

  TaskStatus begin() override;
  TaskStatus advance() override;
  void close() noexcept override;
  std::string format_pending() const override;
  std::string format_call() const override;
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  const CollectivePlan& plan() const noexcept { return *plan_; }  // between begin() and its end

 private:
  // Reduces a message where it arrives.
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
  void copy(const BufferRange& into, const BufferRange& from, bool past_caches) const;
  void reduce(const BufferRange& into, std::span<const BufferRange> operands) const;
  void apply_received(const ReceiveAction& arrival, uint64_t offset, ConstBytes chunk) const;
  void write_results() const;
  bool has_finished_transfers();
  bool can_never_complete();
  bool check(size_t index);

  std::shared_ptr<const CollectivePlan> plan_;
  uint32_t base_ = 0;         // of the group whose plan it is
  std::vector<int> members_;  // empty: all
  uint32_t stream_ = 0;       // of the group's
  Fingerprint fingerprint_;
  uint32_t tag_ = 0;
  std::array<IoVector, 3> buffers_;  // as the plan travels
  IoVector result_;                  // the caller's output, where that is another one
  ScratchPool::ScratchBlock block_;  // staging, then scratch

  int64_t step_number_ = 0;
  const StepPlan* step_ = nullptr;
  StepPlan own_step_;
  schedule::Step memory_;
  std::deque<transport::Request> requests_;  // receives, then sends
  std::deque<ReceiveReducer> receive_reducers_;
  std::vector<Bytes> into_;
  std::vector<ConstBytes> from_;
  std::vector<size_t> ends_;  // in those two, of each message
  size_t posted_ = 0, finished_ = 0;
  unsigned polls_ = 0;
  const FastPath* resumed_from_ = nullptr;  // what it goes on with
  uint64_t transferred_ = 0;                // by transfer of the step: done before it went on
};

}  // namespace torch::comms::ctran
