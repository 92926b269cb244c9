#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <torchcomms/work.hpp>

#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "base/concurrency/freelist.hpp"

namespace torch::comms::nccl {

// An operation that has been launched. Its lane brings it to its end.
class NcclWork final : public TorchWork, public base::FreelistAllocated<NcclWork> {
 public:
  NcclWork(LaunchQueue::LaunchScope& slot, gpu::EventPool::Lease end, KeptStorages keep);

  // Orders the current stream behind the operation; where the host runs it, blocks until it is
  // done. Throws the operation's error.
  void wait() override;
  // The same without the hooks of poll_once(), for a synchronous operation. `current`: the stream
  // that torch works on.
  void wait_without_hooks(gpu::NativeStream current);
  void hostSynchronize() override;
  // The same, of a synchronous operation alone: as the contract has it.
  void waitBlocking() override;
  std::chrono::milliseconds getTimeout() const override { return timeout_; }

 private:
  friend class LaunchQueue;
  void poll() noexcept override { queue_->poll_work(*this); }
  void block();
  void order_current_stream();
  // As a wait of the program's, which meets failures.
  void with_hooks(void (NcclWork::*body)());
  NcclCall call() const {
    return {op_,
            queue_->name(),
            queue_->communicator().rank(),
            timeout_,
            has_own_timeout_,
            is_async_,
            /*ends_itself=*/false,
            name_,
            sequence_};
  }
  // Of the error when its limit has passed.
  std::string format_timeout_error() const;
  // Why it will not end well, if that is known.
  std::exception_ptr failure_reason() const;

  const std::shared_ptr<LaunchQueue> queue_;
  const OpName op_;
  const std::string_view name_;  // see NcclCall
  const uint64_t sequence_;
  const bool is_async_;
  const std::chrono::milliseconds timeout_;
  const bool has_own_timeout_;
  const gpu::NativeStream stream_;
  const gpu::CaptureId capture_;
  gpu::EventPool::Lease end_;

  // Guarded by the lane's lock.
  gpu::EventPool::Lease started_;
  std::optional<Clock::time_point> began_at_;
  KeptStorages kept_storages_;
  std::optional<InFlightCounter::Token> token_;
};

}  // namespace torch::comms::nccl
