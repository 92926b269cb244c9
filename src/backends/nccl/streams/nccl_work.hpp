#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <torchcomms/work.hpp>

#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "base/concurrency/freelist.hpp"

namespace torch::comms::nccl {

// The handle of an operation that has been launched. The LaunchQueue completes it, or fails it.
class NcclWork final : public TorchWork, public base::FreelistAllocated<NcclWork> {
 public:
  NcclWork(LaunchQueue::LaunchScope& scope, gpu::EventPool::Lease end, KeptStorages keep);

  // Makes the current stream wait for the operation. If the host executes that stream, blocks until
  // the operation is done.
  // Throws: the operation's error.
  void wait() override;
  // wait() without the wait hooks, for a synchronous operation. `current` is torch's current
  // stream.
  void wait_without_hooks(gpu::NativeStream current);
  void hostSynchronize() override;
  // Blocks until a synchronous operation is done; an asynchronous operation as TorchWork defines.
  void waitBlocking() override;
  std::chrono::milliseconds getTimeout() const override { return timeout_; }

 private:
  friend class LaunchQueue;
  void poll() noexcept override { queue_->poll_work(*this); }
  void block();
  void order_current_stream();
  // Runs `body` as a wait of the program, between the wait hooks.
  void with_hooks(void (NcclWork::*body)());
  NcclCall call() const {
    return {op_,
            queue_->name(),
            queue_->communicator().rank(),
            timeout_,
            has_own_timeout_,
            is_async_,
            /*aborts_at_timeout=*/false,
            name_,
            sequence_};
  }
  // Returns: the text of the error when the timeout has passed.
  std::string format_timeout_error() const;
  // Returns: why the operation has failed or will fail; null if no failure is known.
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

  // Guarded by the mutex of the LaunchQueue.
  gpu::EventPool::Lease started_;
  std::optional<Clock::time_point> began_at_;
  KeptStorages kept_storages_;
  std::optional<InFlightCounter::Token> token_;
};

}  // namespace torch::comms::nccl
