#pragma once

#include <deque>
#include <memory>
#include <string>

#include "ctran/engine/task.hpp"
#include "ctran/window/one_sided.hpp"
#include "ctran/window/reach.hpp"

namespace torch::comms::ctran {

// An operation on a window, in flight.
class WindowTask final : public Task {
 public:
  // `count`, of kWaitSignal: how many signals must have come. With two references: the caller's and
  // the engine's.
  WindowTask(std::shared_ptr<const Reach> reach, const OneSided& operation, uint64_t count);

  TaskStatus begin() override;
  TaskStatus advance() override;
  void close() noexcept override;
  bool can_still_send() const noexcept override { return !waits(); }
  bool can_still_receive() const noexcept override { return !waits(); }
  std::string format_pending() const override;
  std::vector<int> awaited_ranks() const override;
  std::string format_call() const override;

 private:
  using Kind = OneSided::Kind;
  const Reach::Member& member() const {
    return reach_->members[static_cast<size_t>(operation_.rank)];
  }
  bool waits() const noexcept {
    return operation_.kind == Kind::kWaitSignal || operation_.kind == Kind::kWaitSlot;
  }
  void change(uint64_t offset, uint64_t amount, transport::CounterOp op);
  void flush(int rank);
  TaskStatus look();
  TaskStatus give_up(Errc code, int peer, std::string why);

  // A transfer to a member, until it is where it was to go.
  struct Transfer {
    int rank;
    transport::Request request;
  };
  transport::Request& transfer(int rank);

  std::shared_ptr<const Reach> reach_;
  OneSided operation_;
  uint64_t count_;
  std::deque<Transfer> transfers_;
};

}  // namespace torch::comms::ctran
