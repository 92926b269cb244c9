#include "backends/nccl/streams/launch_queue.hpp"

#include <algorithm>
#include <utility>

#include "backends/common/peer_monitor.hpp"
#include "backends/nccl/graphs/graph_lifetime.hpp"
#include "backends/nccl/streams/collective_kernels.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/nccl_work.hpp"
#include "base/concurrency/executor.hpp"
#include "base/os/log.hpp"
#include "core/work/failed_work.hpp"

namespace torch::comms::nccl {
namespace {

// How often the library and the kernels are asked for errors.
constexpr std::chrono::milliseconds kErrorQueryInterval{100};
using common::kLateThreshold;
// How long the operations that a peer completed before it failed may take to complete here.
constexpr std::chrono::milliseconds kPeerFailureGrace{100};
// How long a caller waits for the library's abort.
constexpr std::chrono::seconds kLibraryAbortTimeout{2};

// An operation gets no start event if it is launched within this part of its timeout after another
// one on the same stream; the event would cost a tenth of a launch. Its time counts from the end of
// the operation before. A device begins some hundred thousand things a second, so the work that a
// caller puts between the two is short compared to the timeout.
constexpr int kBackToBackParts = 200'000;
constexpr std::chrono::seconds kLongTimeout{10};

}  // namespace

LaunchQueue::LaunchQueue(std::string name, std::shared_ptr<Communicator> communicator,
                         std::shared_ptr<NcclDevice> device,
                         std::unique_ptr<GraphReplayMonitor> replays, FailureCallbacks callbacks,
                         std::unique_ptr<PeerMonitor> peer_monitor)
    : name_(std::move(name)),
      communicator_(std::move(communicator)),
      device_(std::move(device)),
      replay_monitor_(std::move(replays)),
      graphs_(std::make_unique<GraphRegistry>(device_)),
      callbacks_(std::move(callbacks)),
      peer_monitor_(std::move(peer_monitor)) {}

LaunchQueue::~LaunchQueue() {
  if (!shared_kernels_ || !has_live_graphs()) return;
  // Graphs may launch the kernels at any time.
  shared_kernels_->release();
  retain_until_graphs_end(std::move(graphs_), std::move(shared_kernels_));
}

void LaunchQueue::attach_kernels(std::shared_ptr<CollectiveKernels> kernels, bool serialized) {
  if (serialized) graphs_->serialize_with_graphs();
  shared_kernels_ = std::move(kernels);
  kernels_ = shared_kernels_.get();
}

LaunchQueue::LaunchScope::LaunchScope(LaunchQueue& queue, const NcclCall& call,
                                      const LaunchStreamChoice& where)
    : queue_(queue),
      launch_lock_(queue.launch_mutex_),
      call_(call),
      device_(*queue.device_),
      current_(queue.device_->current_stream()) {
  const auto now = Clock::now();
  if (queue_.drain_after_suspend(now))
    queue_.abort_if_peer_failed([&call] { return call.context(); });
  // No other code checks the kernels of graph launches.
  queue_.abort_if_kernels_failed([&call] { return call.context(); });
  queue_.communicator().failure().check();
  queue_.current_launch_.op.store(call.op, std::memory_order_relaxed);
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the name is a literal.
  queue_.current_launch_.name.store(call.name.data(), std::memory_order_relaxed);
  queue_.current_launch_.timeout.store(call.timeout, std::memory_order_relaxed);
  queue_.current_launch_.has_own_timeout.store(call.has_own_timeout, std::memory_order_relaxed);
  queue_.current_launch_.sequence.store(call.sequence, std::memory_order_relaxed);
  queue_.current_launch_.deadline = now + call.timeout;
  if (!queue_.is_polled_ && !queue_.is_polled_.exchange(true)) queue_.start_polling();
  auto& device = *queue_.device_;
  const auto& runtime = device.runtime();
  const bool host_runs = device.is_run_by_host(current_);
  capture_ = host_runs ? 0 : runtime.capture_of(current_);
  // A capture must not fork, because the fork might never be joined.
  const bool on_current = !host_runs && (where.use_current_stream || capture_ != 0);
  stream_ = on_current ? current_ : device.own_stream(where.high_priority);
  if (capture_ != 0) graph_ = queue_.graphs_->graph_of(stream_, capture_, queue_.last_marker_);
  const auto& before = graph_ ? graph_->last_operation : queue_.last_marker_;
  if (before.end && before.stream != stream_) runtime.wait(stream_, before.end.get());
  if (!graph_) queue_.graphs_->before_eager_launch(stream_);
  const auto gap = now - (capture_ == 0 ? std::exchange(queue_.last_launch_, now) : now);
  if (!host_runs && !on_current) {
    // The operation begins when this event and the operation before are done.
    started_ = device.events().acquire();
    runtime.record(started_.get(), current_);
    runtime.wait(stream_, started_.get());
    return;
  }
  if (capture_ != 0) {
    if (!call.aborts_at_timeout) tracked_ = queue_.replay_monitor_->begin(call, stream_, capture_);
    return;
  }
  const bool follows = before.end && before.stream == stream_ && on_current &&
                       gap * kBackToBackParts < call.timeout && call.timeout >= kLongTimeout;
  if (follows) return;
  started_ = device.events().acquire();
  runtime.record(started_.get(), stream_);
}

void LaunchQueue::start_polling() {
  try {
    add_to_watchdog(shared_from_this());
  } catch (...) {
    is_polled_ = false;
    throw;
  }
}

LaunchQueue::LaunchScope::~LaunchScope() {
  queue_.current_launch_.deadline.store(Clock::time_point{}, std::memory_order_release);
  if (tracked_) queue_.replay_monitor_->discard(tracked_);
}

c10::intrusive_ptr<NcclWork> LaunchQueue::LaunchScope::finish_launch(KeptStorages keep) {
  auto& device = *queue_.device_;
  const auto& runtime = device.runtime();
  auto end = device.events().acquire();
  runtime.record(end.get(), stream_);
  (graph_ ? graph_->last_operation : queue_.last_marker_) = {stream_, end};
  if (graph_)
    queue_.graphs_->after_captured_launch(*graph_, stream_);
  else
    queue_.graphs_->after_eager_launch(stream_);
  auto work = c10::make_intrusive<NcclWork>(*this, std::move(end), std::move(keep));
  if (capture_ != 0) return finish_capture(std::move(work));
  {
    const std::lock_guard lock(queue_.mutex_);
    work->token_.emplace(queue_.in_flight_);
    queue_.works_in_flight_.push_back(work);
  }
  // From here on the work's timeout applies, also for a caller that waits for it.
  queue_.current_launch_.deadline.store(Clock::time_point{}, std::memory_order_release);
  if (device.is_run_by_host(current_)) {
    // A thread that waits on the host is notified at once, not at the next poll of the watchdog.
    auto* queue = new std::shared_ptr<LaunchQueue>(queue_.shared_from_this());
    runtime.launch_host(
        stream_,
        [](void* argument) {
          const std::unique_ptr<std::shared_ptr<LaunchQueue>> it(
              static_cast<std::shared_ptr<LaunchQueue>*>(argument));
          (*it)->poll(Clock::now());
        },
        queue);
  }
  launch_lock_.unlock();
  // A failure that was found before this work was in the list has not failed it.
  if (queue_.communicator_->failure())
    work->setStatus(WorkStatus::ERROR, queue_.communicator_->failure().error());
  return work;
}

// A captured operation runs in each replay, and the graph owns its memory; its work is completed.
c10::intrusive_ptr<NcclWork> LaunchQueue::LaunchScope::finish_capture(
    c10::intrusive_ptr<NcclWork> work) {
  queue_.replay_monitor_->end(tracked_, stream_);
  if (call_.aborts_at_timeout) queue_.kernels_in_graphs_ = true;
  work->end_.discard();
  work->setStatus(WorkStatus::COMPLETED);
  work->kept_storages_.clear();
  return work;
}

bool LaunchQueue::is_done(const NcclWork& work) noexcept {
  try {
    return device_->runtime().is_done(work.end_.get());
  } catch (const CommError& e) {
    base::log(base::LogLevel::kError, "communicator '" + name_ + "': " + e.what());
    communicator_->cancel({e.code(), e.why(), work.call().context()});
    return true;
  }
}

// Returns: how many of works_in_flight_ are done, by bisection: each begins when the one before is
// done.
size_t LaunchQueue::count_done() noexcept {
  if (works_in_flight_.empty() || !is_done(*works_in_flight_.front())) return 0;
  if (is_done(*works_in_flight_.back())) return works_in_flight_.size();
  size_t ended = 1, open = works_in_flight_.size() - 1;
  while (ended < open) {
    const size_t middle = (ended + open) / 2;
    if (is_done(*works_in_flight_[middle]))
      ended = middle + 1;
    else
      open = middle;
  }
  return ended;
}

std::optional<NcclCall> LaunchQueue::current_launch() const noexcept {
  if (current_launch_.deadline.load() == Clock::time_point{}) return std::nullopt;
  const char* const name = current_launch_.name.load();
  return NcclCall{current_launch_.op.load(),
                  name_,
                  communicator_->rank(),
                  current_launch_.timeout.load(),
                  current_launch_.has_own_timeout.load(),
                  /*async_op=*/false,
                  /*aborts_at_timeout=*/false,
                  name == nullptr ? std::string_view() : name,
                  current_launch_.sequence.load()};
}

std::optional<NcclCall> LaunchQueue::find_timed_out_launch(Clock::time_point now) const noexcept {
  const auto until = current_launch_.deadline.load();
  if (until == Clock::time_point{} || now <= until) return std::nullopt;
  return current_launch();
}

std::optional<Clock::time_point> LaunchQueue::find_slow_launch(
    Clock::time_point now) const noexcept {
  const auto until = current_launch_.deadline.load();
  if (until == Clock::time_point{}) return std::nullopt;
  const auto began = until - current_launch_.timeout.load();
  return now - began < kLateThreshold ? std::nullopt : std::optional(began);
}

// Sets the final status of a work whose operation has ended.
void LaunchQueue::complete(NcclWork& work) noexcept {
  const auto failure = communicator_->failure().error();
  if (work.status() == WorkStatus::NOT_STARTED) work.setStatus(WorkStatus::INPROGRESS);
  work.setStatus(failure ? WorkStatus::ERROR : WorkStatus::COMPLETED, failure);
}

bool LaunchQueue::drain_after_suspend(Clock::time_point now) noexcept {
  const auto unread = now - last_drain_.load(std::memory_order_acquire);
  const bool has_read =
      peer_monitor_->drain_after_suspend(unread, now - last_poll_.load(std::memory_order_relaxed));
  // Stored only after the drain.
  last_poll_.store(now, std::memory_order_release);
  if (has_read) last_drain_.store(now, std::memory_order_release);
  return has_read;
}

void LaunchQueue::poll_work(NcclWork& work) noexcept {
  poll(Clock::now());
  if (isTerminal(work.status())) return;
  // Another thread may have removed the work from the list, and be about to complete it.
  const gpu::CaptureModeGuard mode(device_->runtime());
  if (!is_done(work)) return;
  drain_after_suspend(Clock::now());
  abort_on_library_error([&work] { return work.call().context(); });
  abort_if_failed();
  complete(work);
}

void LaunchQueue::poll(Clock::time_point now) noexcept {
  try {
    // The device is not made current: a thread that does so without need costs memory there.
    const gpu::CaptureModeGuard mode(device_->runtime());
    drain_after_suspend(now);
    Works ended;
    c10::intrusive_ptr<NcclWork> begun, late, oldest;
    std::optional<GraphReplayMonitor::LateReplay> late_replay;
    auto slow = find_slow_launch(now);
    bool query_errors = false, query_kernels = false,
         waits = current_launch_.deadline.load() != Clock::time_point{};
    const bool peer_failed = peer_monitor_->has_failure();
    const auto replayed = replay_monitor_->poll(now);
    if (replayed.has_events) replay_monitor_->deliver_events(callbacks_.on_replay_event);
    {
      const std::lock_guard lock(mutex_);
      const auto open = works_in_flight_.begin() + static_cast<std::ptrdiff_t>(count_done());
      ended.assign(works_in_flight_.begin(), open);
      works_in_flight_.erase(works_in_flight_.begin(), open);
      if (!works_in_flight_.empty()) {
        auto& first = works_in_flight_.front();  // no later operation can have begun
        if (!first->began_at_ &&
            (!first->started_ || device_->runtime().is_done(first->started_.get()))) {
          first->began_at_ = now;
          first->started_ = {};
          begun = first;
        }
        if (first->began_at_ && now - *first->began_at_ > first->timeout_) late = first;
        if (first->began_at_ && now - *first->began_at_ >= kLateThreshold) slow = first->began_at_;
      }
      if (replayed.late) late_replay_ = replayed.late;
      late_replay = late_replay_;
      waits = waits || !works_in_flight_.empty() || replayed.is_running;
      if (now >= next_error_query_) {
        query_errors = !works_in_flight_.empty() || replayed.is_running;
        query_kernels = has_watched_kernels();
        if (query_errors || query_kernels) next_error_query_ = now + kErrorQueryInterval;
      }
      if ((query_errors || peer_failed) && !works_in_flight_.empty())
        oldest = works_in_flight_.front();
    }
    if (begun) begun->setStatus(WorkStatus::INPROGRESS);
    if (!ended.empty()) oldest = ended.front();
    const auto context = [&] {
      if (oldest) return oldest->call().context();
      if (const auto launch = current_launch()) return launch->context();
      return Context{.comm = name_, .rank = communicator_->rank()};
    };
    // Errors are checked before a work is completed, because a failed operation lets the device
    // continue, too.
    if (!ended.empty()) drain_after_suspend(Clock::now());
    if (query_errors || !ended.empty())
      abort_on_library_error(context);
    else if (query_kernels && abort_if_kernels_failed(context))
      report_unowned_failure();
    abort_if_failed();
    for (const auto& work : ended) {
      complete(*work);
      work->kept_storages_.clear();
      work->token_.reset();
    }
    if (!ended.empty()) {
      const std::lock_guard lock(
          mutex_);  // else a waiter could miss this between its check and its sleep
      idle_.notify_all();
    }
    if (communicator_->failure() || is_released_for_shrink_) return;
    if (slow) peer_monitor_->check_mismatch_later(*slow);
    std::optional<CommError> lost;
    if (query_errors || (waits && peer_failed))
      lost = find_exited_rank(context(), query_errors);
    else if (query_kernels && has_live_graphs())
      set_kernel_warning(context());
    if (lost) {
      // An error that the kernels found is more specific.
      abort_if_kernels_failed(context);
      abort_all(*lost, nullptr);
    } else if (late)
      abort_on_timeout(late->call(), late->format_timeout_error(), late.get());
    else if (const auto launch = find_timed_out_launch(now))
      abort_on_timeout(
          *launch, format_timeout_error(*launch, "not launched: the library call did not return"),
          nullptr);
    else if (late_replay)
      abort_on_late_replay(*late_replay);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              "the watchdog cannot poll communicator '" + name_ + "': " + e.what());
  }
}

bool LaunchQueue::has_watched_kernels() const noexcept {
  return kernels_in_graphs_ && !replay_monitor_->is_stopped() && !communicator_->failure();
}

bool LaunchQueue::abort_if_kernels_failed(const std::function<Context()>& context) {
  const auto* const kernels = kernels_.load();
  if (kernels == nullptr) return false;
  auto why = kernels->failure(context());
  if (!why || communicator_->failure()) return false;
  // The comparison of all ranks finds the minority, and reaches ranks that do not wait for the
  // kernels.
  if (kernels->has_mismatch()) {
    auto where = why->context();
    where.peer = -1;  // the rank that the kernels waited for may be right
    where.culprits.clear();
    if (const auto found = peer_monitor_->find_mismatch(where)) why = found;
  }
  return abort_all(*why, nullptr);
}

void LaunchQueue::abort_on_library_error(const std::function<Context()>& context) {
  abort_if_kernels_failed(context);
  if (peer_monitor_->has_failure())
    if (const auto why = peer_monitor_->abort_error(context())) abort_all(*why, nullptr);
  const auto error = communicator_->check_async(context);
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    abort_all(e, nullptr);
  }
}

std::optional<CommError> LaunchQueue::failure(const Context& context) {
  abort_if_kernels_failed([&] { return context; });
  return communicator_->failure().reason();
}

std::optional<CommError> LaunchQueue::find_exited_rank(const Context& context, bool query_errors) {
  if (auto why = peer_monitor_->failure(context, kPeerFailureGrace)) return why;
  if (!query_errors) return std::nullopt;
  if (auto* const kernels = kernels_.load())
    if (auto lost = kernels->find_failed_peer(context)) return lost;
  return peer_monitor_->find_exited_rank(context);
}

void LaunchQueue::set_kernel_warning(const Context& context) {
  auto* const kernels = kernels_.load();
  if (kernels == nullptr) return;
  if (const auto lost = kernels->find_failed_peer(context)) kernels->set_warning(*lost);
}

void LaunchQueue::abort_if_peer_failed(const std::function<Context()>& context) {
  if (!peer_monitor_->has_failure()) return;
  if (const auto why = peer_monitor_->failure(context())) abort_all(*why, nullptr);
}

bool LaunchQueue::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit,
                        [this] { return works_in_flight_.empty() && in_flight_->is_idle(); });
}

bool LaunchQueue::is_idle() { return wait_idle(std::chrono::milliseconds::zero()); }

bool LaunchQueue::has_pending_sync() {
  const std::lock_guard lock(mutex_);
  return std::any_of(works_in_flight_.begin(), works_in_flight_.end(),
                     [](const auto& work) { return !work->is_async_; });
}

bool LaunchQueue::is_active() noexcept {
  // Reset first: a launch that begins after this sees it and calls add_to_watchdog().
  is_polled_ = false;
  if (current_launch_.deadline.load() == Clock::time_point{}) {
    const std::lock_guard lock(mutex_);
    if (works_in_flight_.empty() && !replay_monitor_->is_watching() && !has_watched_kernels())
      return false;
  }
  is_polled_ = true;
  return true;
}

bool LaunchQueue::abort_all(const CommError& why, const NcclWork* timed_out) {
  bool first = false;
  const auto library_ended = std::make_shared<std::promise<void>>();
  {
    const std::lock_guard lock(abort_mutex_);
    if (is_released_for_shrink_ || std::exchange(is_aborted_, true)) return false;
    first = communicator_->cancel(why);
    library_aborted_ = library_ended->get_future();
  }
  const auto reason = first ? why : communicator_->failure().reason().value_or(why);
  if (auto* const kernels = kernels_.load()) kernels->abort(reason);
  // Announced before any call here can return. If the library is torchcomms' own (vendor `lookup`),
  // an abort does not let peers continue, so there is no announcement.
  const bool announced =
      communicator_->library().vendor().lookup == nullptr && peer_monitor_->announce_abort(reason);
  // Started before any code of the program runs, which may wait for the abort. It runs on another
  // thread, because the library may take long and the watchdog has other clients.
  base::Executor::process().run_or_inline([communicator = communicator_,
                                           peer_monitor = peer_monitor_, reason, announced,
                                           library_ended] {
    if (announced) peer_monitor->wait_abort_acknowledged();
    communicator->abort(reason);
    library_ended->set_value();
  });
  // Runs before the works fail: a thread that learns of the failure finds that all queues have
  // failed.
  callbacks_.on_failure(*this, reason);
  fail_works(communicator_->failure().error(), timed_out);
  return first;
}

void LaunchQueue::abort_if_failed() {
  if (!communicator_->failure()) return;
  {
    const std::lock_guard lock(abort_mutex_);
    if (is_aborted_) return;
  }
  if (const auto why = communicator_->failure().reason()) abort_all(*why, nullptr);
}

void LaunchQueue::fail_works(const std::exception_ptr& why, const NcclWork* timed_out) {
  Works all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(works_in_flight_.begin(), works_in_flight_.end());
  }
  for (const auto& work : all)
    work->setStatus(work.get() == timed_out ? WorkStatus::TIMEDOUT : WorkStatus::ERROR, why);
}

void LaunchQueue::announce_abort(const CommError& why) {
  if (is_released_for_shrink_ || communicator_->failure() || communicator_->handle() == nullptr)
    return;
  if (peer_monitor_->announce_abort(why)) peer_monitor_->wait_abort_acknowledged();
}

bool LaunchQueue::release_for_shrink(const CommError& why) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (communicator_->failure()) return false;
    is_released_for_shrink_ = true;
  }
  if (peer_monitor_->announce_abort(why)) peer_monitor_->wait_abort_acknowledged();
  if (is_idle()) return true;
  if (auto* const kernels = kernels_.load()) kernels->abort(why);
  fail_works(std::make_exception_ptr(why), nullptr);
  return true;
}

bool LaunchQueue::abort_on_timeout(const NcclCall& call, const std::string& text,
                                   const NcclWork* timed_out) {
  const auto where = peer_monitor_->query_progress();
  if (!where) return false;
  return abort_all({Errc::kTimeout, text + where->text, call.context(where->culprits)}, timed_out);
}

void LaunchQueue::abort_on_late_replay(const GraphReplayMonitor::LateReplay& late) {
  const NcclCall call{late.op, name_, communicator_->rank(), late.timeout, late.has_own_timeout,
                      false};
  const auto while_doing = "Graph monitor: collective TIMED OUT for graph " +
                           std::to_string(late.graph) + ": not finished in a replay";
  if (abort_on_timeout(call, format_timeout_error(call, while_doing.c_str()), nullptr))
    report_unowned_failure();
}

void LaunchQueue::report_unowned_failure() {
  callbacks_.on_unowned_failure(
      *c10::make_intrusive<FailedWork>(communicator_->failure().reason().value()));
}

void LaunchQueue::abort(const CommError& why) { abort_all(why, nullptr); }

void LaunchQueue::abort_and_wait(const CommError& why, bool blocks) {
  abort(why);
  callbacks_.abort_hooks->wait();
  if (!blocks) return;
  std::shared_future<void> ended;
  {
    const std::lock_guard lock(abort_mutex_);
    ended = library_aborted_;
  }
  if (!ended.valid())
    communicator_->abort(why);
  else if (!AbortHookRunner::in_hook())
    ended.wait_for(kLibraryAbortTimeout);
}

void LaunchQueue::mark_failure_observed() noexcept {
  is_failure_observed_.store(true);
  callbacks_.abort_hooks->wait();
}

}  // namespace torch::comms::nccl
