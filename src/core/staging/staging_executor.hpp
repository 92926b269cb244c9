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

// A staged operation: queued, copied to the host, run by the backend, copied back.
struct Staging::StagedOperation {
  enum class Stage : uint8_t { kQueued, kRunning, kCopyingBack, kDone, kFailed };

  StagedCall call;
  Tensors host_tensors;  // the tensors that the backend uses
  // Events on the device: the operation may start; its inputs are on the host; its outputs are on
  // the device. They live as long as a thread may wait for them.
  gpu::EventPool::Lease ready, copied_to_host, copied_back;

  // The executor's lock guards the fields below.
  Stage stage = Stage::kQueued;
  WorkPtr backend_work;  // the work of the backend

  c10::intrusive_ptr<StagedWork> work;  // until the operation ends; null if it is synchronous
  std::optional<InFlightCounter::Token> token;
};

// Carries out staged operations.
// Threads: see Staging; works call wait_for_stage() and the methods with an operation from any
// thread.
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

  // Throws: CommError without context if the call cannot be staged.
  void require(const StagedCall& call) const;
  // Creates an operation that starts after the present work of the current stream.
  StagedOperationPtr make_operation(StagedCall call);
  // Runs the operation on the calling thread until the result is on the device.
  // Throws: the exception of the backend.
  void run_sync(StagedOperationPtr job);
  // Queues the operation for the executor's thread.
  void enqueue(StagedOperationPtr job);

  void flush();
  void drain();
  // Releases the backend; no operation is running and none follows.
  void close();

  // Blocks until the operation has reached `stage`, or failed.
  // Returns: its stage.
  StagedOperation::Stage wait_for_stage(const StagedOperation& job, StagedOperation::Stage stage);
  WorkPtr backend_work_of(const StagedOperation& job);
  // Returns: whether the outputs are on the device, even if the executor's thread has not noticed
  // it yet.
  bool is_copied_back(const StagedOperation& job);
  // Makes the current stream wait for the copies back to the device.
  void order_current_stream(const StagedOperation& job);

 private:
  bool is_staged(const StagedOperand& operand) const {
    return operand.device == device_->torch_device();
  }
  bool touches_device(const StagedCall& call) const;
  at::Tensor make_host_tensor(const StagedOperand& operand);
  void copy_to_host(StagedOperation& job);
  // Returns: false if there is nothing to copy back.
  bool copy_back(StagedOperation& job);
  void notify_on_stream(gpu::NativeStream stream);
  bool is_done(const gpu::EventPool::Lease& event) const;
  template <class Condition>
  void block_until(const Condition& condition);

  void start_thread();
  void run_thread() noexcept;
  void poll_once() noexcept;
  // Issues the first queued operation.
  // Returns: false if the queue is empty or its first operation must wait.
  bool issue_first();
  void poll_running(const StagedOperationPtr& job);
  void finish(StagedOperation& job) noexcept;
  void fail(const StagedOperationPtr& job, const std::exception_ptr& error,
            WorkStatus status) noexcept;
  // Keeps the memory of a failed operation until its copies have ended. After a timeout the backend
  // may use that memory for longer, so it is kept.
  void keep_until_idle(const StagedOperationPtr& job, WorkStatus status);
  void set_stage(StagedOperation& job, StagedOperation::Stage stage, WorkPtr inner = nullptr);

  std::shared_ptr<TorchCommBackend> backend_;  // null after close()
  std::shared_ptr<CommDevice> device_;         // its own stream carries the copies to the host
  std::shared_ptr<gpu::PinnedPool> pool_;
  gpu::NativeStream copy_back_stream_ = nullptr;  // the stream of the copies back to the device
  const std::shared_ptr<InFlightCounter> in_flight_ = std::make_shared<InFlightCounter>();
  const std::shared_ptr<EventCount> event_count_ = std::make_shared<EventCount>();
  const uint64_t fork_generation_;

  std::mutex mutex_;  // guards all below, and the marked fields of operations
  std::deque<StagedOperationPtr> queued_;
  std::list<StagedOperationPtr>
      failed_in_use_;                       // failed operations whose copies still use their memory
  std::vector<Tensors> timed_out_buffers_;  // the backend may still write to them after a timeout
  bool is_thread_running_ = false, is_closed_ = false;
  std::list<StagedOperationPtr> running_, copying_back_;  // only the executor's thread uses them
};

// The work of an asynchronous staged operation.
class Staging::StagedWork final : public TorchWork {
 public:
  StagedWork(std::shared_ptr<StagingExecutor> executor, std::shared_ptr<StagedOperation> job);

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
