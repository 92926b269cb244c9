#pragma once

#include <deque>
#include <memory>
#include <string>

#include "ctran/engine/task/task.hpp"
#include "ctran/window/peer_windows.hpp"
#include "ctran/window/rma_operation.hpp"

namespace torch::comms::ctran {

// An operation on a window in flight.
class WindowTask final : public Task {
 public:
  // Creates a task with two references: the caller's and the engine's. `count`: for kWaitSignal,
  // the number of signals to wait for.
  WindowTask(std::shared_ptr<const PeerWindows> peer_windows, const RmaOperation& operation,
             uint64_t count);

  TaskStatus begin() override;
  TaskStatus advance() override;
  void close() noexcept override;
  bool can_still_send() const noexcept override { return !is_wait(); }
  bool can_still_receive() const noexcept override { return !is_wait(); }
  std::string format_pending() const override;
  std::vector<int> awaited_ranks() const override;
  std::string format_call() const override;

 private:
  using Kind = RmaOperation::Kind;
  const PeerWindows::PeerWindow& target() const {
    return peer_windows_->windows[static_cast<size_t>(operation_.rank)];
  }
  bool is_wait() const noexcept {
    return operation_.kind == Kind::kWaitSignal || operation_.kind == Kind::kWaitSlot;
  }
  void update_word(uint64_t offset, uint64_t amount, transport::CounterOp op);
  void flush(int rank);
  TaskStatus poll_wait();
  TaskStatus fail_locally(Errc code, int peer, std::string why);

  // A transfer to a member, until it has arrived there.
  struct WindowTransfer {
    int rank;
    transport::Request request;
  };
  transport::Request& transfer(int rank);

  std::shared_ptr<const PeerWindows> peer_windows_;
  RmaOperation operation_;
  uint64_t count_;
  std::deque<WindowTransfer> transfers_;
};

}  // namespace torch::comms::ctran
