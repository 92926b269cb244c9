#include "core/staging/staging_executor.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torchcomms/base/error.hpp>

#include "base/concurrency/executor.hpp"
#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

// How often a blocked thread checks for interrupts and for a failed device.
constexpr std::chrono::milliseconds kStagingTick{50};

// Returns: the work status for the exception that ended an operation, from the backend or the
// device.
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

Staging::StagingExecutor::StagingExecutor(std::shared_ptr<TorchCommBackend> backend,
                                          std::shared_ptr<CommDevice> device,
                                          size_t most_idle_bytes)
    : backend_(std::move(backend)),
      device_(std::move(device)),
      pool_(gpu::PinnedPool::make(device_->shared_runtime(), most_idle_bytes)),
      fork_generation_(base::fork_generation()) {
  const CommDevice::DeviceCallGuard scope(*device_);
  copy_back_stream_ = device_->runtime().create_stream(false);
}

Staging::StagingExecutor::~StagingExecutor() {
  if (fork_generation_ != base::fork_generation()) {
    // A GPU runtime does not work in a forked child.
    static_cast<void>(new auto(std::move(device_)));
    static_cast<void>(new auto(std::move(pool_)));
    return;
  }
  device_->runtime().destroy_stream(copy_back_stream_);
}

bool Staging::StagingExecutor::touches_device(const StagedCall& call) const {
  return call.operands.empty() ||
         std::any_of(call.operands.begin(), call.operands.end(),
                     [this](const auto& operand) { return is_staged(operand); });
}

void Staging::StagingExecutor::require(const StagedCall& call) const {
  for (const auto& operand : call.operands)
    if (!is_staged(operand) && !operand.device.is_cpu())
      throw CommError(Errc::kInvalidArgument, "a tensor is on device " + operand.device.str() +
                                                  ", allowed for this communicator is " +
                                                  device_->torch_device().str() + " or cpu");
  if (!touches_device(call)) return;
  const CommDevice::DeviceCallGuard scope(*device_);
  if (const auto current = device_->current_stream();
      current != nullptr && device_->runtime().capture_of(current) != 0)
    throw CommError(Errc::kUnsupported,
                    "the current stream is being captured, and backend '" +
                        std::string(backend_->getBackendName()) +
                        "' copies GPU tensors through host memory, which cannot be captured; "
                        "call it outside of the capture");
}

Staging::StagingExecutor::StagedOperationPtr Staging::StagingExecutor::make_operation(
    StagedCall call) {
  auto job = std::make_shared<StagedOperation>();
  job->call = std::move(call);
  if (!touches_device(job->call)) return job;
  const CommDevice::DeviceCallGuard scope(*device_);
  job->ready = device_->events().acquire();
  device_->runtime().record(job->ready.get(), device_->current_stream());
  return job;
}

at::Tensor Staging::StagingExecutor::make_host_tensor(const StagedOperand& operand) {
  const auto options = at::TensorOptions().dtype(operand.dtype).device(at::kCPU);
  if (!is_staged(operand))
    return at::from_blob(operand.data, operand.sizes, [kept = operand.storage](void*) {}, options);
  auto block = operand.size_bytes > 0 ? pool_->acquire(operand.size_bytes) : nullptr;
  return at::from_blob(block.get(), operand.sizes, [block](void*) {}, options);
}

void Staging::StagingExecutor::notify_on_stream(gpu::NativeStream stream) {
  auto* event_count = new std::shared_ptr<EventCount>(event_count_);
  device_->runtime().launch_host(
      stream,
      [](void* argument) {
        const std::unique_ptr<std::shared_ptr<EventCount>> it(
            static_cast<std::shared_ptr<EventCount>*>(argument));
        (*it)->notify_all();
      },
      event_count);
}

void Staging::StagingExecutor::copy_to_host(StagedOperation& job) {
  for (const auto& operand : job.call.operands)
    job.host_tensors.push_back(make_host_tensor(operand));
  if (!job.ready) return;
  const CommDevice::DeviceCallGuard scope(*device_);
  const auto& runtime = device_->runtime();
  const auto stream = device_->own_stream();
  job.copied_to_host = device_->events().acquire();
  runtime.wait(stream, job.ready.get());
  for (size_t i = 0; i < job.host_tensors.size(); ++i) {
    const auto& operand = job.call.operands[i];
    if (is_staged(operand) && operand.is_read && operand.size_bytes > 0)
      runtime.copy_to_host(job.host_tensors[i].data_ptr(), operand.data, operand.size_bytes,
                           stream);
  }
  runtime.record(job.copied_to_host.get(), stream);
  notify_on_stream(stream);
}

bool Staging::StagingExecutor::copy_back(StagedOperation& job) {
  const CommDevice::DeviceCallGuard scope(*device_);
  const auto& runtime = device_->runtime();
  bool any = false;
  for (size_t i = 0; i < job.host_tensors.size(); ++i) {
    const auto& operand = job.call.operands[i];
    if (!is_staged(operand) || !operand.is_written || operand.size_bytes == 0) continue;
    runtime.copy_to_device(operand.data, job.host_tensors[i].data_ptr(), operand.size_bytes,
                           copy_back_stream_);
    any = true;
  }
  if (!any) return false;
  job.copied_back = device_->events().acquire();
  runtime.record(job.copied_back.get(), copy_back_stream_);
  return true;
}

bool Staging::StagingExecutor::is_done(const gpu::EventPool::Lease& event) const {
  return !event || device_->runtime().is_done(event.get());
}

template <class Condition>
void Staging::StagingExecutor::block_until(const Condition& condition) {
  try {
    while (true) {
      const auto seen = event_count_->epoch();
      if (condition()) return;
      event_count_->wait(seen, kStagingTick);
      check_interrupt();
    }
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void Staging::StagingExecutor::run_sync(StagedOperationPtr job) {
  flush();
  try {
    copy_to_host(*job);
    block_until([&] {
      const gpu::CaptureModeGuard mode(device_->runtime());
      // If the backend is aborted, its next call throws the reason, whatever the state of the
      // device.
      return is_done(job->copied_to_host) || backend_->isAborted();
    });
    job->call.dispatch(*backend_, job->host_tensors, /*async_op=*/false);
    if (copy_back(*job)) {
      const CommDevice::DeviceCallGuard scope(*device_);
      device_->runtime().synchronize_event(job->copied_back.get());
    }
  } catch (...) {
    keep_until_idle(job, status_of(std::current_exception()));
    throw;
  }
}

void Staging::StagingExecutor::start_thread() {
  if (is_thread_running_) return;
  try {
    base::Executor::unshared().run([self = shared_from_this()] { self->run_thread(); });
  } catch (const std::system_error& e) {
    throw CommError(
        Errc::kResourceExhausted,
        std::string("no thread could be started for asynchronous operations: ") + e.what());
  }
  is_thread_running_ = true;
}

void Staging::StagingExecutor::enqueue(StagedOperationPtr job) {
  job->token.emplace(in_flight_);
  {
    const std::lock_guard lock(mutex_);
    start_thread();
    queued_.push_back(std::move(job));
  }
  event_count_->notify_all();
}

void Staging::StagingExecutor::flush() {
  block_until([this] {
    const std::lock_guard lock(mutex_);
    return queued_.empty();
  });
}

void Staging::StagingExecutor::drain() {
  block_until([this] { return in_flight_->is_idle(); });
}

void Staging::StagingExecutor::close() {
  std::shared_ptr<TorchCommBackend> backend;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    backend = std::move(backend_);
  }
  event_count_->notify_all();
}

Staging::StagedOperation::Stage Staging::StagingExecutor::wait_for_stage(
    const StagedOperation& job, StagedOperation::Stage stage) {
  auto now = StagedOperation::Stage::kQueued;
  block_until([&] {
    const std::lock_guard lock(mutex_);
    now = job.stage;
    return now >= stage;
  });
  return now;
}

WorkPtr Staging::StagingExecutor::backend_work_of(const StagedOperation& job) {
  const std::lock_guard lock(mutex_);
  return job.backend_work;
}

bool Staging::StagingExecutor::is_copied_back(const StagedOperation& job) {
  {
    const std::lock_guard lock(mutex_);
    if (job.stage != StagedOperation::Stage::kCopyingBack &&
        job.stage != StagedOperation::Stage::kDone)
      return false;
  }
  const gpu::CaptureModeGuard mode(device_->runtime());
  return is_done(job.copied_back);
}

void Staging::StagingExecutor::order_current_stream(const StagedOperation& job) {
  if (!job.copied_back) return;
  const CommDevice::DeviceCallGuard scope(*device_);
  const auto& runtime = device_->runtime();
  const auto current = device_->current_stream();
  // A captured stream cannot wait for an event outside of the capture, but the host can.
  if (current != nullptr && runtime.capture_of(current) != 0)
    runtime.synchronize_event(job.copied_back.get());
  else
    runtime.wait(current, job.copied_back.get());
}

void Staging::StagingExecutor::set_stage(StagedOperation& job, StagedOperation::Stage stage,
                                         WorkPtr inner) {
  {
    const std::lock_guard lock(mutex_);
    job.stage = stage;
    if (inner) job.backend_work = std::move(inner);
  }
  event_count_->notify_all();
}

void Staging::StagingExecutor::keep_until_idle(const StagedOperationPtr& job, WorkStatus status) {
  const std::lock_guard lock(mutex_);
  if (status == WorkStatus::TIMEDOUT) timed_out_buffers_.push_back(job->host_tensors);
  if (!job->copied_to_host && !job->copied_back) return;
  start_thread();
  failed_in_use_.push_back(job);
  event_count_->notify_all();
}

void Staging::StagingExecutor::fail(const StagedOperationPtr& job, const std::exception_ptr& error,
                                    WorkStatus status) noexcept {
  try {
    keep_until_idle(job, status);
    set_stage(*job, StagedOperation::Stage::kFailed);
    const auto work = std::exchange(job->work, nullptr);
    if (work) work->setStatus(status, error);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              std::string("cannot complete a failed operation: ") + e.what());
  }
  job->token.reset();
  event_count_->notify_all();
}

void Staging::StagingExecutor::finish(StagedOperation& job) noexcept {
  job.host_tensors.clear();
  job.call.operands.clear();
  try {
    set_stage(job, StagedOperation::Stage::kDone);
    const auto work = std::exchange(job.work, nullptr);
    if (work) work->setStatus(WorkStatus::COMPLETED);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("a hook of a finished work failed: ") + e.what());
  }
  job.token.reset();
  event_count_->notify_all();
}

bool Staging::StagingExecutor::issue_first() {
  StagedOperationPtr job;
  {
    const std::lock_guard lock(mutex_);
    if (queued_.empty()) return false;
    job = queued_.front();
  }
  std::exception_ptr error;
  try {
    if (job->host_tensors.empty() && !job->copied_to_host) copy_to_host(*job);
    if (!is_done(job->copied_to_host) && !backend_->isAborted()) return false;
    const base::ScopedSequence issued(job->call.sequence);
    auto inner = job->call.dispatch(*backend_, job->host_tensors, /*async_op=*/true);
    inner->registerWorkEndHook([event_count = event_count_] { event_count->notify_all(); });
    set_stage(*job, StagedOperation::Stage::kRunning, std::move(inner));
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
  event_count_->notify_all();
  return true;
}

void Staging::StagingExecutor::poll_running(const StagedOperationPtr& job) {
  if (job->backend_work->status() != WorkStatus::COMPLETED) {
    auto error = job->backend_work->error();
    if (!error)
      error = std::make_exception_ptr(CommError(
          Errc::kInternal, "the backend's work failed without an error; please report this"));
    return fail(job, error, job->backend_work->status());
  }
  try {
    if (!copy_back(*job)) return finish(*job);
    notify_on_stream(copy_back_stream_);
  } catch (...) {
    return fail(job, std::current_exception(), WorkStatus::ERROR);
  }
  copying_back_.push_back(job);
  set_stage(*job, StagedOperation::Stage::kCopyingBack);
}

void Staging::StagingExecutor::poll_once() noexcept {
  const auto ended = [this](const gpu::EventPool::Lease& event) {
    try {
      return is_done(event);
    } catch (const CommError& e) {
      base::log(base::LogLevel::kError, e.what());
      return true;  // the device has failed, so no copy runs any more
    }
  };
  const gpu::CaptureModeGuard mode(device_->runtime());
  for (auto at = running_.begin(); at != running_.end();) {
    if (!isTerminal((*at)->backend_work->status())) {
      ++at;
      continue;
    }
    const auto job = *at;
    at = running_.erase(at);
    poll_running(job);
  }
  copying_back_.remove_if([&](const StagedOperationPtr& job) {
    if (!ended(job->copied_back)) return false;
    finish(*job);
    return true;
  });
  std::list<StagedOperationPtr> idle_operations;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = failed_in_use_.begin(); at != failed_in_use_.end();) {
      const auto next = std::next(at);
      if (ended((*at)->copied_to_host) && ended((*at)->copied_back))
        idle_operations.splice(idle_operations.end(), failed_in_use_, at);
      at = next;
    }
  }
  for (const auto& job : idle_operations) {
    job->host_tensors.clear();
    job->call.operands.clear();
  }
  while (issue_first()) {
  }
}

void Staging::StagingExecutor::run_thread() noexcept {
  while (true) {
    const auto seen = event_count_->epoch();
    poll_once();
    bool idle = false;
    {
      const std::lock_guard lock(mutex_);
      idle = queued_.empty() && failed_in_use_.empty() && running_.empty() && copying_back_.empty();
      if (idle && is_closed_) {
        is_thread_running_ = false;
        return;
      }
    }
    event_count_->wait(seen, idle ? EventCount::kForever : kStagingTick);
  }
}

}  // namespace torch::comms
