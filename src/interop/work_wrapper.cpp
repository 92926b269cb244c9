#include <torchcomms/backend_wrapper.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torchcomms/base/error.hpp>

#include "core/work/interruptible_call.hpp"
#include "interop/callbacks.hpp"

namespace torch::comms {
namespace {

using Future = c10::ivalue::Future;

// The works that must complete before a future is complete, and their first error.
struct PendingWorks {
  std::atomic<size_t> works;
  std::mutex mutex;  // guards error
  std::exception_ptr error;

  explicit PendingWorks(size_t count) : works(count) {}
  void keep(std::exception_ptr failure) {
    std::lock_guard lock(mutex);
    if (!error) error = std::move(failure);
  }
};

bool ended(const std::vector<WorkPtr>& works) {
  return std::all_of(works.begin(), works.end(),
                     [](const WorkPtr& work) { return isTerminal(work->status()); });
}

std::exception_ptr first_error(const std::vector<WorkPtr>& works) {
  for (const auto& work : works)
    if (auto error = work->error()) return error;
  return nullptr;
}

// Returns: first_error(), and marks the failures of all works as observed, because the caller
// passes the error to the user.
std::exception_ptr handed_out(const std::vector<WorkPtr>& works) {
  auto error = first_error(works);
  if (error)
    for (const auto& work : works) work->meetFailure();
  return error;
}

// Waits for the work. Its error is dropped here, because the future gets it from the work's end
// hook.
void wait_for_its_hook(TorchWork& work) {
  try {
    work.wait();
  } catch (...) {
    if (!isTerminal(work.status())) throw;
  }
}

constexpr std::chrono::milliseconds kTick{50};  // the interval between checks for Ctrl-C

std::atomic<WorkWrapper::FutureError> future_error{nullptr};

void complete(const c10::intrusive_ptr<Future>& future, const std::vector<at::Tensor>& outputs,
              const std::exception_ptr& error) {
  const auto make = future_error.load();
  if (error)
    future->setError(make != nullptr ? make(error) : error);
  else
    future->markCompleted(c10::IValue(outputs));
}

}  // namespace

// Reports when the callbacks of a future have run, which the completion of the future does not
// show.
struct WorkWrapper::Callbacks {
  std::promise<void> done;
  std::shared_future<void> are_done = done.get_future().share();
  std::atomic<std::thread::id>
      thread{};  // the thread that runs them; a callback may wait for the work
};

namespace {

std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors)
    if (!tensor.device().is_cpu() &&
        std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

}  // namespace

WorkWrapper::WorkWrapper(std::vector<WorkPtr> works, std::vector<at::Tensor> outputs,
                         c10d::OpType type, int source_rank)
    : c10d::Work(-1, type),
      works_(std::move(works)),
      outputs_(std::move(outputs)),
      source_rank_(source_rank) {}

bool WorkWrapper::isCompleted() {
  for (const auto& work : works_)
    if (!isTerminal(work->status()) && !work->isCompleted() && !isTerminal(work->status()))
      return false;
  std::lock_guard lock(future_mutex_);
  return !future_ || future_->completed();
}

int WorkWrapper::sourceRank() const {
  return works_.size() == 1 && source_rank_ < 0 ? works_.front()->source() : source_rank_;
}

bool WorkWrapper::isSuccess() const {
  const bool went_well = std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) {
    return work->status() == WorkStatus::COMPLETED;
  });
  if (!went_well)
    for (const auto& work : works_) work->meetFailure();
  return went_well;
}

std::exception_ptr WorkWrapper::exception() const { return handed_out(works_); }

std::string_view WorkWrapper::standing() const {
  if (first_error(works_)) return "failed";
  return ended(works_) ? "completed" : "in progress";
}

std::chrono::milliseconds WorkWrapper::getTimeout() const {
  auto longest = std::chrono::milliseconds::zero();
  for (const auto& work : works_) longest = std::max(longest, work->getTimeout());
  return works_.empty() ? std::chrono::milliseconds::max() : longest;
}

bool WorkWrapper::wait(std::chrono::milliseconds timeout) {
  if (timeout != kNoTimeout && timeout != std::chrono::milliseconds::max())
    throw CommError(Errc::kUnsupported,
                    "wait(timeout) is not supported; pass timeout= to the operation itself");
  std::exception_ptr first;
  for (const auto& work : works_) {
    try {
      work->wait();
      if (blocks_host_) work->hostSynchronize();
    } catch (...) {
      if (!work->error()) throw;  // an error of the wait itself, such as Ctrl-C
      if (!first) first = std::current_exception();
    }
  }
  std::shared_ptr<Callbacks> callbacks;
  {
    std::lock_guard lock(future_mutex_);
    callbacks = callbacks_;
  }
  // After this, the future is complete for every caller, and the effects of its callbacks are
  // visible.
  if (callbacks && callbacks->thread.load() != std::this_thread::get_id())
    while (!are_callbacks_closed() &&
           callbacks->are_done.wait_for(kTick) == std::future_status::timeout)
      check_interrupt_unwrapped();
  if (first) std::rethrow_exception(first);
  return true;
}

void WorkWrapper::setFutureError(FutureError make) noexcept { future_error.store(make); }

c10::intrusive_ptr<c10::ivalue::Future> WorkWrapper::getFuture() {
  // Other threads may query the state of the work meanwhile.
  const std::lock_guard making(making_mutex_);
  {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
  }
  std::shared_ptr<Callbacks> callbacks;
  auto future = make_future(callbacks);
  const std::lock_guard lock(future_mutex_);
  callbacks_ = std::move(callbacks);
  return future_ = std::move(future);
}

c10::intrusive_ptr<c10::ivalue::Future> WorkWrapper::make_future(
    std::shared_ptr<Callbacks>& callbacks) const {
  const auto devices = devices_of(outputs_);
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
  const bool is_ordered =
      !devices.empty() && std::none_of(works_.begin(), works_.end(),
                                       [](const WorkPtr& work) { return work->waitBlocksHost(); });
  if (is_ordered) {
    try {
      for (const auto& work : works_) work->wait();
      complete(future, outputs_, nullptr);
    } catch (...) {
      if (!ended(works_)) throw;  // an error of the wait itself, such as Ctrl-C
      complete(future, outputs_, std::current_exception());
    }
  } else if (ended(works_)) {
    complete(future, outputs_, handed_out(works_));
  } else {
    auto remaining = std::make_shared<PendingWorks>(works_.size());
    callbacks = std::make_shared<Callbacks>();
    for (const auto& work : works_) {
      // The hook runs during the status change, while the work is alive.
      work->registerWorkEndHook(
          [remaining, work = work.get(), future, callbacks, outputs = outputs_] {
            work->meetFailure();  // now, because the work may no longer exist when the future is
                                  // complete
            remaining->keep(work->error());
            if (remaining->works.fetch_sub(1) != 1) return;
            run_callback_before_exit([=] {
              callbacks->thread = std::this_thread::get_id();
              const auto done = c10::make_scope_exit([&] { callbacks->done.set_value(); });
              complete(future, outputs, remaining->error);
            });
          });
      if (work->endsByWaitOnly()) run_callback([work] { wait_for_its_hook(*work); });
    }
  }
  return future;
}

}  // namespace torch::comms
