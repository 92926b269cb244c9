#pragma once

#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ctran/engine/pieces.hpp"
#include "ctran/engine/plan.hpp"
#include "ctran/engine/scratch_pool.hpp"
#include "ctran/engine/task.hpp"

namespace torch::comms::ctran {

class Express;

// A collective: runs its plan step by step. Keeps its memory for the next call.
class CollectiveTask final : public Task {
 public:
  // In `group`, whose plan it is. Copies what the call lends. Throws CommError(kInvalidArgument)
  // for buffers of another size.
  void prepare(const Call& call, std::shared_ptr<const Plan> plan);

  // The same among some members of the group alone, by their ranks in it, on a stream of their own
  // and beside the group's other collectives. All of them name the same ones.
  void prepare(const Call& call, std::shared_ptr<const Plan> plan, std::vector<int> members,
               uint32_t stream);

  // Between prepare() and start_query(), which is at once: some of it has been done there.
  void go_on(const Express& begun) noexcept { begun_ = &begun; }

  // The plan of the last call, if that was in the group with this base.
  std::shared_ptr<const Plan> take_plan(uint32_t base) noexcept {
    return base_ == base ? std::move(plan_) : nullptr;
  }

  Outcome begin() override;
  Outcome advance() override;
  void close() noexcept override;
  std::string waits_for() const override;
  std::string words() const override;
  const Fingerprint& print() const noexcept { return print_; }
  const Plan& plan() const noexcept { return *plan_; }  // between start_query() and its end

 private:
  // Reduces a message where it arrives.
  class Sink final : public transport::ReceiveSink {
   public:
    void aim(const CollectiveTask& task, const PlannedMessage& message) noexcept {
      task_ = &task;
      message_ = &message;
    }
    void consume(uint64_t offset, ConstBytes chunk) noexcept override;

   private:
    const CollectiveTask* task_ = nullptr;
    const PlannedMessage* message_ = nullptr;
  };

  const Pieces& place(schedule::Buffer buffer) const noexcept {
    return places_[static_cast<size_t>(buffer)];
  }
  int member(int peer) const noexcept {
    return members_.empty() ? peer : members_[static_cast<size_t>(peer)];
  }
  void stage();
  void begin_step();
  void post();
  bool is_moved(size_t index) const noexcept;
  void post_receives();
  void post_send(size_t index, std::span<const ConstBytes> pieces);
  void gather_pieces();
  void run_locals() const;
  void copy(const Part& into, const Part& from, bool past_caches) const;
  void reduce(const Part& into, std::span<const Part> operands) const;
  void absorb(const Arrival& arrival, uint64_t offset, ConstBytes chunk) const;
  void settle() const;
  bool transfers_done();
  bool is_in_vain();
  bool check(size_t index);

  std::shared_ptr<const Plan> plan_;
  uint32_t base_ = 0;         // of the group whose plan it is
  std::vector<int> members_;  // empty: all
  uint32_t stream_ = 0;       // of the group's
  Fingerprint print_;
  uint32_t tag_ = 0;
  std::array<Pieces, 3> places_;  // as the plan travels
  Pieces result_;                 // the caller's output, where that is another one
  ScratchPool::Block block_;      // staging, then scratch

  int64_t step_number_ = 0;
  const StepPlan* step_ = nullptr;
  StepPlan own_step_;
  schedule::Step memory_;
  std::deque<transport::Request> requests_;  // receives, then sends
  std::deque<Sink> sinks_;
  std::vector<Bytes> into_;
  std::vector<ConstBytes> from_;
  std::vector<size_t> ends_;  // in those two, of each message
  size_t posted_ = 0, finished_ = 0;
  unsigned looks_ = 0;
  const Express* begun_ = nullptr;  // what it goes on with
  uint64_t moved_ = 0;              // by transfer of the step: done before it went on
};

}  // namespace torch::comms::ctran
