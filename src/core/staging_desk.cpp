#include "core/staging_desk.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torchcomms/base/error.hpp>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "core/bounded.hpp"

namespace torch::comms {
namespace {

// How often a blocked thread looks whether the user wants out, and whether the device has failed.
constexpr std::chrono::milliseconds kStagingTick{50};

// Of an exception that ended an operation, the backend's own or the device's.
WorkStatus status_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return e.code() == Errc::kTimeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
  } catch (...) {
    return WorkStatus::ERROR;
  }
}

}  // namespace

Staging::Desk::Desk(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<Device> device,
                    size_t most_idle_bytes)
    : backend_(std::move(backend)),
      device_(std::move(device)),
      pool_(gpu::PinnedPool::make(device_->shared_runtime(), most_idle_bytes)),
      fork_generation_(base::fork_generation()) {
  const Device::Scope scope(*device_);
  back_ = device_->runtime().create_stream(false);
}

Staging::Desk::~Desk() {
  if (fork_generation_ != base::fork_generation()) {
    // A runtime does not work in the child of a fork.
    static_cast<void>(new auto(std::move(device_)));
    static_cast<void>(new auto(std::move(pool_)));
    return;
  }
  device_->runtime().destroy_stream(back_);
}

bool Staging::Desk::touches_device(const StagedCall& call) const {
  return call.operands.empty() ||
         std::any_of(call.operands.begin(), call.operands.end(),
                     [this](const auto& operand) { return is_staged(operand); });
}

void Staging::Desk::require(const StagedCall& call) const {
  for (const auto& operand : call.operands)
    if (!is_staged(operand) && !operand.device.is_cpu())
      throw CommError(Errc::kInvalidArgument, "a tensor is on device " + operand.device.str() +
                                                  ", this communicator's are on " +
                                                  device_->torch_device().str() + " or cpu");
  if (!touches_device(call)) return;
  const Device::Scope scope(*device_);
  if (const auto current = device_->current_stream();
      current != nullptr && device_->runtime().capture_of(current) != 0)
    throw CommError(Errc::kUnsupported,
                    "the current stream is being captured, and backend '" +
                        std::string(backend_->getBackendName()) +
                        "' moves tensors of a GPU through host memory, which a graph cannot do; "
                        "call it outside of the capture");
}

Staging::Desk::JobPtr Staging::Desk::make_job(StagedCall call) {
  auto job = std::make_shared<Job>();
  job->call = std::move(call);
  if (!touches_device(job->call)) return job;
  const Device::Scope scope(*device_);
  job->ready = device_->events().acquire();
  device_->runtime().record(job->ready.get(), device_->current_stream());
  return job;
}

at::Tensor Staging::Desk::host_of(const StagedOperand& operand) {
  const auto options = at::TensorOptions().dtype(operand.dtype).device(at::kCPU);
  if (!is_staged(operand))
    return at::from_blob(operand.data, operand.sizes, [kept = operand.storage](void*) {}, options);
  auto block = operand.size_bytes > 0 ? pool_->acquire(operand.size_bytes) : nullptr;
  return at::from_blob(block.get(), operand.sizes, [block](void*) {}, options);
}

void Staging::Desk::ring_when_here(gpu::NativeStream stream) {
  auto* bell = new std::shared_ptr<Bell>(bell_);
  device_->runtime().launch_host(
      stream,
      [](void* argument) {
        const std::unique_ptr<std::shared_ptr<Bell>> it(
            static_cast<std::shared_ptr<Bell>*>(argument));
        (*it)->ring();
      },
      bell);
}

void Staging::Desk::fetch(Job& job) {
  for (const auto& operand : job.call.operands) job.hosts.push_back(host_of(operand));
  if (!job.ready) return;
  const Device::Scope scope(*device_);
  const auto& runtime = device_->runtime();
  const auto stream = device_->own_stream();
  job.fetched = device_->events().acquire();
  runtime.wait(stream, job.ready.get());
  for (size_t i = 0; i < job.hosts.size(); ++i) {
    const auto& operand = job.call.operands[i];
    if (is_staged(operand) && operand.is_read && operand.size_bytes > 0)
      runtime.copy_to_host(job.hosts[i].data_ptr(), operand.data, operand.size_bytes, stream);
  }
  runtime.record(job.fetched.get(), stream);
  ring_when_here(stream);
}

bool Staging::Desk::give_back(Job& job) {
  const Device::Scope scope(*device_);
  const auto& runtime = device_->runtime();
  bool any = false;
  for (size_t i = 0; i < job.hosts.size(); ++i) {
    const auto& operand = job.call.operands[i];
    if (!is_staged(operand) || !operand.is_written || operand.size_bytes == 0) continue;
    runtime.copy_to_device(operand.data, job.hosts[i].data_ptr(), operand.size_bytes, back_);
    any = true;
  }
  if (!any) return false;
  job.returned = device_->events().acquire();
  runtime.record(job.returned.get(), back_);
  return true;
}

bool Staging::Desk::is_done(const gpu::EventPool::Lease& event) const {
  return !event || device_->runtime().is_done(event.get());
}

template <class Condition>
void Staging::Desk::block_until(const Condition& condition) {
  try {
    while (true) {
      const auto seen = bell_->rings();
      if (condition()) return;
      bell_->await(seen, kStagingTick);
      check_interrupt();
    }
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void Staging::Desk::carry_out(JobPtr job) {
  hand_over();
  try {
    fetch(*job);
    block_until([&] {
      const gpu::CaptureModeGuard mode(device_->runtime());
      // Of an aborted backend the next call raises why, whatever the device has come to.
      return is_done(job->fetched) || backend_->isAborted();
    });
    job->call.issue(*backend_, job->hosts, /*async_op=*/false);
    if (give_back(*job)) {
      const Device::Scope scope(*device_);
      device_->runtime().synchronize_event(job->returned.get());
    }
  } catch (...) {
    leave(job, status_of(std::current_exception()));
    throw;
  }
}

void Staging::Desk::start_thread() {
  if (thread_runs_) return;
  try {
    std::thread([self = shared_from_this()] { self->work(); }).detach();
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("there is no thread for asynchronous operations: ") + e.what());
  }
  thread_runs_ = true;
}

void Staging::Desk::queue(JobPtr job) {
  job->ticket.emplace(flight_);
  {
    const std::lock_guard lock(mutex_);
    start_thread();
    queued_.push_back(std::move(job));
  }
  bell_->ring();
}

void Staging::Desk::hand_over() {
  block_until([this] {
    const std::lock_guard lock(mutex_);
    return queued_.empty();
  });
}

void Staging::Desk::drain() {
  block_until([this] { return flight_->idle(); });
}

void Staging::Desk::close() {
  std::shared_ptr<TorchCommBackend> backend;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    backend = std::move(backend_);
  }
  bell_->ring();
}

Staging::Job::Stage Staging::Desk::await_stage(const Job& job, Job::Stage stage) {
  auto now = Job::Stage::kQueued;
  block_until([&] {
    const std::lock_guard lock(mutex_);
    now = job.stage;
    return now >= stage;
  });
  return now;
}

WorkPtr Staging::Desk::inner_of(const Job& job) {
  const std::lock_guard lock(mutex_);
  return job.inner;
}

bool Staging::Desk::has_returned(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (job.stage != Job::Stage::kReturning && job.stage != Job::Stage::kDone) return false;
  }
  const gpu::CaptureModeGuard mode(device_->runtime());
  return is_done(job.returned);
}

void Staging::Desk::order_current_stream(const Job& job) {
  if (!job.returned) return;
  const Device::Scope scope(*device_);
  const auto& runtime = device_->runtime();
  const auto current = device_->current_stream();
  // A capture cannot wait for what is outside of it; the host can.
  if (current != nullptr && runtime.capture_of(current) != 0)
    runtime.synchronize_event(job.returned.get());
  else
    runtime.wait(current, job.returned.get());
}

void Staging::Desk::move(Job& job, Job::Stage stage, WorkPtr inner) {
  {
    const std::lock_guard lock(mutex_);
    job.stage = stage;
    if (inner) job.inner = std::move(inner);
  }
  bell_->ring();
}

void Staging::Desk::leave(const JobPtr& job, WorkStatus status) {
  const std::lock_guard lock(mutex_);
  if (status == WorkStatus::TIMEDOUT) kept_.push_back(job->hosts);
  if (!job->fetched && !job->returned) return;
  start_thread();
  left_.push_back(job);
  bell_->ring();
}

void Staging::Desk::fail(const JobPtr& job, const std::exception_ptr& error,
                         WorkStatus status) noexcept {
  try {
    leave(job, status);
    move(*job, Job::Stage::kFailed);
    const auto work = std::exchange(job->work, nullptr);
    if (work) work->setStatus(status, error);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("a failed operation: ") + e.what());
  }
  job->ticket.reset();
  bell_->ring();
}

void Staging::Desk::finish(Job& job) noexcept {
  job.hosts.clear();
  job.call.operands.clear();
  try {
    move(job, Job::Stage::kDone);
    const auto work = std::exchange(job.work, nullptr);
    if (work) work->setStatus(WorkStatus::COMPLETED);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("a hook of a finished work failed: ") + e.what());
  }
  job.ticket.reset();
  bell_->ring();
}

bool Staging::Desk::issue_first() {
  JobPtr job;
  {
    const std::lock_guard lock(mutex_);
    if (queued_.empty()) return false;
    job = queued_.front();
  }
  std::exception_ptr error;
  try {
    if (job->hosts.empty() && !job->fetched) fetch(*job);
    if (!is_done(job->fetched) && !backend_->isAborted()) return false;
    const base::ScopedSequence issued(job->call.number);
    auto inner = job->call.issue(*backend_, job->hosts, /*async_op=*/true);
    inner->registerWorkEndHook([bell = bell_] { bell->ring(); });
    move(*job, Job::Stage::kRunning, std::move(inner));
    job->work->setStatus(WorkStatus::INPROGRESS);
    running_.push_back(job);
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    queued_.pop_front();
  }
  if (error) fail(job, error, status_of(error));
  bell_->ring();
  return true;
}

void Staging::Desk::look_at_running(const JobPtr& job) {
  if (job->inner->status() != WorkStatus::COMPLETED) {
    auto error = job->inner->error();
    if (!error)
      error = std::make_exception_ptr(
          CommError(Errc::kInternal, "the backend's work failed without an error"));
    return fail(job, error, job->inner->status());
  }
  try {
    if (!give_back(*job)) return finish(*job);
    ring_when_here(back_);
  } catch (...) {
    return fail(job, std::current_exception(), WorkStatus::ERROR);
  }
  returning_.push_back(job);
  move(*job, Job::Stage::kReturning);
}

void Staging::Desk::step() noexcept {
  const auto ended = [this](const gpu::EventPool::Lease& event) {
    try {
      return is_done(event);
    } catch (const CommError& e) {
      base::log(base::LogLevel::kError, e.what());
      return true;  // the device has failed: nothing is copied any more
    }
  };
  const gpu::CaptureModeGuard mode(device_->runtime());
  for (auto at = running_.begin(); at != running_.end();) {
    if (!isTerminal((*at)->inner->status())) {
      ++at;
      continue;
    }
    const auto job = *at;
    at = running_.erase(at);
    look_at_running(job);
  }
  returning_.remove_if([&](const JobPtr& job) {
    if (!ended(job->returned)) return false;
    finish(*job);
    return true;
  });
  std::list<JobPtr> through;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = left_.begin(); at != left_.end();) {
      const auto next = std::next(at);
      if (ended((*at)->fetched) && ended((*at)->returned)) through.splice(through.end(), left_, at);
      at = next;
    }
  }
  for (const auto& job : through) {
    job->hosts.clear();
    job->call.operands.clear();
  }
  while (issue_first()) {
  }
}

void Staging::Desk::work() noexcept {
  while (true) {
    const auto seen = bell_->rings();
    step();
    bool idle = false;
    {
      const std::lock_guard lock(mutex_);
      idle = queued_.empty() && left_.empty() && running_.empty() && returning_.empty();
      if (idle && closed_) {
        thread_runs_ = false;
        return;
      }
    }
    bell_->await(seen, idle ? Bell::kNoLimit : kStagingTick);
  }
}

}  // namespace torch::comms
