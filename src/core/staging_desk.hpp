#pragma once

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include <torchcomms/work.hpp>

#include "core/bell.hpp"
#include "core/flight.hpp"
#include "core/staged_call.hpp"
#include "core/staging.hpp"
#include "gpu/pinned_pool.hpp"

namespace torch::comms {

// One operation on its way: queued, fetched from the device, with the backend, copied back.
struct Staging::Job {
  enum class Stage : uint8_t { kQueued, kRunning, kReturning, kDone, kFailed };

  StagedCall call;
  Tensors hosts;  // what the backend works on
  // On the device: what the operation waits for has run; its tensors are read; are written. Kept as
  // long as somebody may wait for them.
  gpu::EventPool::Lease ready, fetched, returned;

  // Guarded by the desk's lock.
  Stage stage = Stage::kQueued;
  WorkPtr inner;  // of the backend

  c10::intrusive_ptr<Work> work;  // until the end; null for a synchronous operation
  std::optional<Flight::Ticket> ticket;
};

// Carries jobs out. Threads: see Staging; works call await_stage() and job members from any.
class Staging::Desk : public std::enable_shared_from_this<Desk> {
 public:
  using JobPtr = std::shared_ptr<Job>;

  Desk(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<Device> device,
       size_t most_idle_bytes);
  ~Desk();
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;

  TorchCommBackend& backend() const noexcept { return *backend_; }
  Device& device() const noexcept { return *device_; }
  gpu::PinnedPool& pool() const noexcept { return *pool_; }
  const std::shared_ptr<Flight>& flight() const noexcept { return flight_; }

  // Throws CommError without context for what cannot be staged.
  void require(const StagedCall& call) const;
  // Behind what the current stream has.
  JobPtr make_job(StagedCall call);
  // On the calling thread, until the result is there. Throws what the backend throws.
  void carry_out(JobPtr job);
  // On the desk's own thread.
  void queue(JobPtr job);

  void hand_over();
  void drain();
  // Nothing is under way, and nothing comes any more.
  void close();

  // Blocks until the job has come as far as `stage`, or failed. Where it is then.
  Job::Stage await_stage(const Job& job, Job::Stage stage);
  WorkPtr inner_of(const Job& job);
  // What it writes is on the device, whether or not the desk's thread has seen that.
  bool has_returned(const Job& job);
  // Puts the current stream behind what the job writes on the device.
  void order_current_stream(const Job& job);

 private:
  bool is_staged(const StagedOperand& operand) const {
    return operand.device == device_->torch_device();
  }
  bool touches_device(const StagedCall& call) const;
  at::Tensor host_of(const StagedOperand& operand);
  void fetch(Job& job);
  // False if nothing has to be copied back.
  bool give_back(Job& job);
  void ring_when_here(gpu::NativeStream stream);
  bool is_done(const gpu::EventPool::Lease& event) const;
  template <class Condition>
  void block_until(const Condition& condition);

  void start_thread();
  void work() noexcept;
  void step() noexcept;
  // False if the first of the queue has to wait.
  bool issue_first();
  void look_at_running(const JobPtr& job);
  void finish(Job& job) noexcept;
  void fail(const JobPtr& job, const std::exception_ptr& error, WorkStatus status) noexcept;
  // What a failed job's copies use lives until they have ended; where it timed out, the backend may
  // use it for longer.
  void leave(const JobPtr& job, WorkStatus status);
  void move(Job& job, Job::Stage stage, WorkPtr inner = nullptr);

  std::shared_ptr<TorchCommBackend> backend_;  // null after close()
  std::shared_ptr<Device> device_;             // its own stream is the one to fetch on
  std::shared_ptr<gpu::PinnedPool> pool_;
  gpu::NativeStream back_ = nullptr;  // the stream to give back on
  const std::shared_ptr<Flight> flight_ = std::make_shared<Flight>();
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  const uint64_t fork_generation_;

  std::mutex mutex_;  // guards all below, and what jobs say that it does
  std::deque<JobPtr> queued_;
  std::list<JobPtr> left_;     // failed, while the device may still read into their memory
  std::vector<Tensors> kept_;  // the backend may still write to it: timed out
  bool thread_runs_ = false, closed_ = false;
  std::list<JobPtr> running_, returning_;  // of the desk's thread alone
};

// An asynchronous operation.
class Staging::Work final : public TorchWork {
 public:
  Work(std::shared_ptr<Desk> desk, std::shared_ptr<Job> job);

  void wait() override;
  void waitBlocking() override;
  void hostSynchronize() override;
  std::chrono::milliseconds getTimeout() const override { return limit_; }
  int source() const noexcept override;
  bool waitBlocksHost() const noexcept override { return true; }

 private:
  friend class Desk;
  void poll() noexcept override;
  void block();
  void require_own_process() const;

  const std::shared_ptr<Desk> desk_;
  const std::shared_ptr<Job> job_;
  const std::chrono::milliseconds limit_;
  const uint64_t fork_generation_;
};

}  // namespace torch::comms
