#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <torchcomms/work.hpp>

#include "backends/nccl/call.hpp"
#include "backends/nccl/lane.hpp"
#include "base/freelist.hpp"

namespace torch::comms::nccl {

// An operation that has been launched. Its lane brings it to its end.
class Work final : public TorchWork, public base::FreelistAllocated<Work> {
 public:
  Work(Lane::Slot& slot, gpu::EventPool::Lease end, Kept keep);

  // Orders the current stream behind the operation; where the host runs it, blocks until it is
  // done. Throws the operation's error.
  void wait() override;
  // The same without the hooks of poll_once(), for a synchronous operation. `current`: the stream
  // that torch works on.
  void settle(gpu::NativeStream current);
  void hostSynchronize() override;
  // The same, of a synchronous operation alone: as the contract has it.
  void waitBlocking() override;
  std::chrono::milliseconds getTimeout() const override { return limit_; }

 private:
  friend class Lane;
  void poll() noexcept override { lane_->look_at(*this); }
  void block();
  void settle_current();
  // As a wait of the program's, which meets failures.
  void with_hooks(void (Work::*body)());
  Call call() const {
    return {op_,
            lane_->name(),
            lane_->communicator().rank(),
            limit_,
            limit_is_own_,
            async_,
            /*ends_itself=*/false,
            name_,
            number_};
  }
  // Of the error when its limit has passed.
  std::string limit_text() const;
  // Why it will not end well, if that is known.
  std::exception_ptr reason() const;

  const std::shared_ptr<Lane> lane_;
  const OpName op_;
  const std::string_view name_;  // see Call
  const uint64_t number_;
  const bool async_;
  const std::chrono::milliseconds limit_;
  const bool limit_is_own_;
  const gpu::NativeStream stream_;
  const gpu::CaptureId capture_;
  gpu::EventPool::Lease end_;

  // Guarded by the lane's lock.
  gpu::EventPool::Lease started_;
  std::optional<Clock::time_point> began_;
  Kept keep_;
  std::optional<InFlightCounter::Token> ticket_;
};

}  // namespace torch::comms::nccl
