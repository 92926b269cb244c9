#pragma once

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include <torchcomms/work.hpp>

#include "core/staging/staged_call.hpp"
#include "core/staging/staging.hpp"
#include "core/work/event_count.hpp"
#include "core/work/inflight_counter.hpp"
#include "gpu/pinned_pool.hpp"

namespace torch::comms {

// One operation on its way: queued, fetched from the device, with the backend, copied back.
struct Staging::StagedOperation {
  enum class Stage : uint8_t { kQueued, kRunning, kCopyingBack, kDone, kFailed };

  StagedCall call;
  Tensors host_tensors;  // what the backend works on
  // On the device: what the operation waits for has run; its tensors are read; are written. Kept as
  // long as somebody may wait for them.
  gpu::EventPool::Lease ready, copied_to_host, copied_back;

  // Guarded by the desk's lock.
  Stage stage = Stage::kQueued;
  WorkPtr backend_work;  // of the backend

  c10::intrusive_ptr<StagedWork> work;  // until the end; null for a synchronous operation
  std::optional<InFlightCounter::Token> token;
};

// Carries jobs out. Threads: see Staging; works call wait_for_stage() and job members from any.
class Staging::StagingExecutor : public std::enable_shared_from_this<StagingExecutor> {
 public:
  using StagedOperationPtr = std::shared_ptr<StagedOperation>;

  StagingExecutor(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<CommDevice> device,
                  size_t most_idle_bytes);
  ~StagingExecutor();
  StagingExecutor(const StagingExecutor&) = delete;
  StagingExecutor& operator=(const StagingExecutor&) = delete;

  TorchCommBackend& backend() const noexcept { return *backend_; }
  CommDevice& device() const noexcept { return *device_; }
  gpu::PinnedPool& pool() const noexcept { return *pool_; }
  const std::shared_ptr<InFlightCounter>& in_flight() const noexcept { return in_flight_; }

  // Throws CommError without context for what cannot be staged.
  void require(const StagedCall& call) const;
  // Behind what the current stream has.
  StagedOperationPtr make_operation(StagedCall call);
  // On the calling thread, until the result is there. Throws what the backend throws.
  void run_sync(StagedOperationPtr job);
  // On the desk's own thread.
  void enqueue(StagedOperationPtr job);

  void flush();
  void drain();
  // Nothing is under way, and nothing comes any more.
  void close();

  // Blocks until the job has come as far as `stage`, or failed. Where it is then.
  StagedOperation::Stage wait_for_stage(const StagedOperation& job, StagedOperation::Stage stage);
  WorkPtr backend_work_of(const StagedOperation& job);
  // What it writes is on the device, whether or not the desk's thread has seen that.
  bool is_copied_back(const StagedOperation& job);
  // Puts the current stream behind what the job writes on the device.
  void order_current_stream(const StagedOperation& job);

 private:
  bool is_staged(const StagedOperand& operand) const {
    return operand.device == device_->torch_device();
  }
  bool touches_device(const StagedCall& call) const;
  at::Tensor make_host_tensor(const StagedOperand& operand);
  void copy_to_host(StagedOperation& job);
  // False if nothing has to be copied back.
  bool copy_back(StagedOperation& job);
  void notify_on_stream(gpu::NativeStream stream);
  bool is_done(const gpu::EventPool::Lease& event) const;
  template <class Condition>
  void block_until(const Condition& condition);

  void start_thread();
  void run_thread() noexcept;
  void poll_once() noexcept;
  // False if the first of the queue has to wait.
  bool issue_first();
  void poll_running(const StagedOperationPtr& job);
  void finish(StagedOperation& job) noexcept;
  void fail(const StagedOperationPtr& job, const std::exception_ptr& error,
            WorkStatus status) noexcept;
  // What a failed job's copies use lives until they have ended; where it timed out, the backend may
  // use it for longer.
  void keep_until_idle(const StagedOperationPtr& job, WorkStatus status);
  void set_stage(StagedOperation& job, StagedOperation::Stage stage, WorkPtr inner = nullptr);

  std::shared_ptr<TorchCommBackend> backend_;  // null after close_queue()
  std::shared_ptr<CommDevice> device_;         // its own stream is the one to fetch on
  std::shared_ptr<gpu::PinnedPool> pool_;
  gpu::NativeStream copy_back_stream_ = nullptr;  // the stream to give back on
  const std::shared_ptr<InFlightCounter> in_flight_ = std::make_shared<InFlightCounter>();
  const std::shared_ptr<EventCount> event_count_ = std::make_shared<EventCount>();
  const uint64_t fork_generation_;

  std::mutex mutex_;  // guards all below, and what jobs say that it does
  std::deque<StagedOperationPtr> queued_;
  std::list<StagedOperationPtr>
      failed_in_use_;  // failed, while the device may still read into their memory
  std::vector<Tensors> timed_out_buffers_;  // the backend may still write to it: timed out
  bool is_thread_running_ = false, is_closed_ = false;
  std::list<StagedOperationPtr> running_, copying_back_;  // of the desk's thread alone
};

// An asynchronous operation.
class Staging::StagedWork final : public TorchWork {
 public:
  StagedWork(std::shared_ptr<StagingExecutor> desk, std::shared_ptr<StagedOperation> job);

  void wait() override;
  void waitBlocking() override;
  void hostSynchronize() override;
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
  int source() const noexcept override;
  bool waitBlocksHost() const noexcept override { return true; }

 private:
  friend class StagingExecutor;
  void poll() noexcept override;
  void block();
  void require_own_process() const;

  const std::shared_ptr<StagingExecutor> executor_;
  const std::shared_ptr<StagedOperation> operation_;
  const std::chrono::milliseconds timeout_;
  const uint64_t fork_generation_;
};

}  // namespace torch::comms
