#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/nccl/call.hpp"
#include "backends/nccl/lane.hpp"

namespace torch::comms::nccl {

// An operation that has been launched. Its lane brings it to its end.
class Work final : public TorchWork {
 public:
  Work(Lane::Slot& slot, std::shared_ptr<gpu::EventPool::Lease> end,
       std::vector<c10::Storage> keep);

  // Orders the current stream behind the operation; where the host runs it, blocks until it is
  // done. Throws the operation's error.
  void wait() override;
  // The same without the hooks of wait(), for a synchronous operation.
  void settle();
  void hostSynchronize() override;
  // The same, of a synchronous operation alone: as the contract has it.
  void waitBlocking() override;
  std::chrono::milliseconds getTimeout() const override { return limit_; }

 private:
  friend class Lane;
  void poll() noexcept override { lane_->look_at(*this); }
  void block();
  Call call() const {
    return {op_, lane_->name(), lane_->communicator().rank(), limit_, limit_is_own_, async_};
  }
  // Of the error when its limit has passed.
  std::string limit_text() const;
  // Why it will not end well, if that is known.
  std::exception_ptr reason() const;

  const std::shared_ptr<Lane> lane_;
  const OpName op_;
  const bool async_;
  const std::chrono::milliseconds limit_;
  const bool limit_is_own_;
  const gpu::NativeStream stream_;
  const gpu::CaptureId capture_;
  const std::shared_ptr<gpu::EventPool::Lease> end_;

  // Guarded by the lane's lock.
  gpu::EventPool::Lease started_;
  std::optional<Clock::time_point> began_;
  std::vector<c10::Storage> keep_;  // not tensors: freed without Python
  std::optional<Flight::Ticket> ticket_;
};

}  // namespace torch::comms::nccl
