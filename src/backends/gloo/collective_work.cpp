#include "backends/gloo/collective_work.hpp"

#include <algorithm>
#include <utility>

#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::gloo {
namespace {

using std::chrono::milliseconds;

// The interval at which a blocked thread checks for an interrupt of the user (Ctrl-C).
constexpr milliseconds kCollectiveTick{50};
// Gloo's own wait is cheapest but cannot be interrupted. Most operations complete within this time.
constexpr milliseconds kNativeWaitTimeout{100};

milliseconds time_until(Clock::time_point when) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(when - Clock::now()));
}

// Returns: Gloo's error of a collective, extended by what the monitor reports about the peer ranks.
// If Gloo's own timeout expired, Gloo has closed all connections.
CommError failure(const std::exception_ptr& error, const GlooCall& call,
                  ConnectionState& connections, common::PeerMonitor& peer_monitor) {
  if (const auto closed = peer_monitor.closed_before(context(call), call.sequence)) return *closed;
  auto translated = translate_error(error, call);
  common::PeerMonitor::ProgressSummary where;
  if (translated.code() == Errc::kTimeout) {
    // If several works fail at once, the first one waits for the progress query.
    const bool first = connections.close(translated.context().op);
    where =
        first ? peer_monitor.wait_for_progress() : peer_monitor.query_progress().value_or(where);
  } else {
    if (const auto why = peer_monitor.wait_for_failure(context(call), kFailureLookupTimeout))
      return *why;
    if (translated.code() != Errc::kPeerFailed) return translated;
    // A peer whose connection is closed may have called finalize(), which is not a failure.
    where = peer_monitor.wait_for_progress();
  }
  auto error_context = translated.context();
  error_context.culprits = where.culprits;
  return CommError(translated.code(), translated.why() + where.text, error_context);
}

}  // namespace

CollectiveWork::CollectiveWork(const GlooCall& call, std::vector<NativeWorkPtr> natives,
                               Finish finish, const GlooGroup& group)
    : call_(call),
      fork_generation_(base::fork_generation()),
      natives_(std::move(natives)),
      finish_(std::move(finish)),
      connections_(group.connections),
      peer_monitor_(group.peer_monitor),
      token_(group.in_flight),
      pending_natives_(natives_.size()) {}

c10::intrusive_ptr<CollectiveWork> CollectiveWork::start(const GlooCall& call,
                                                         std::vector<NativeWorkPtr> natives,
                                                         Finish finish, const GlooGroup& group) {
  auto work =
      c10::make_intrusive<CollectiveWork>(call, std::move(natives), std::move(finish), group);
  work->setStatus(WorkStatus::INPROGRESS);
  // This is a copy, because the last completed native clears the work's list.
  const auto works = work->natives_;
  if (works.empty()) work->end(nullptr);
  for (const auto& native : works)
    native->getFuture()->addCallback([work](c10::ivalue::Future& future) {
      work->native_done(future.hasError() ? future.exception_ptr() : nullptr);
    });
  return work;
}

void CollectiveWork::native_done(const std::exception_ptr& error) noexcept {
  if (error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  if (pending_natives_.fetch_sub(1) == 1) end(error_);
}

void CollectiveWork::end(std::exception_ptr error) noexcept {
  try {
    if (error) {
      error = std::make_exception_ptr(failure(error, call_, *connections_, *peer_monitor_));
    } else if (finish_) {
      with_translated_errors(call_, finish_);
    }
  } catch (...) {
    error = std::current_exception();
  }
  finish_ = nullptr;
  natives_.clear();
  token_.release();
  try {
    setStatus(status_of(error), error);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              std::string("a hook of a completed work raised an error: ") + e.what());
  }
}

void CollectiveWork::check_peers() noexcept {
  try {
    if (isTerminal(status())) return;
    if (Clock::now() - call_.begin >= common::kLateThreshold)
      peer_monitor_->check_mismatch_later(call_.begin);
    auto why = peer_monitor_->closed_before(context(call_), call_.sequence);
    if (!why) why = peer_monitor_->failure(context(call_), kFailureGrace);
    if (!why) return;
    connections_->close(why->context().op);
    setStatus(WorkStatus::ERROR, std::make_exception_ptr(*why));
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              std::string("cannot check the peers of an operation in flight: ") + e.what());
  }
}

void CollectiveWork::wait() {
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked,
                    "this work was started before fork(); only the parent process can wait for it",
                    context(call_));
  runWaitPreHooks();
  const auto last_time = call_.deadline() + kErrorGrace;
  try {
    while (!waitForTerminal(std::min(kCollectiveTick, time_until(last_time)))) {
      check_peers();
      if (Clock::now() >= last_time) {
        const auto where = peer_monitor_->wait_for_progress();
        setStatus(WorkStatus::TIMEDOUT,
                  std::make_exception_ptr(
                      timeout_error(call_, where.culprits,
                                    "Gloo did not report the timeout within 0.5 s: a rank hangs, "
                                    "or an earlier operation has not completed",
                                    where.text)));
      }
      check_interrupt();
    }
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
  runWaitPostHooks();
  rethrowIfFailed();
}

void wait_synchronously(const GlooCall& call, const NativeWorkPtr& native, const GlooGroup& group) {
  try {
    native->wait(std::min(kNativeWaitTimeout, time_until(call.deadline() + kErrorGrace)) +
                 milliseconds(1));
  } catch (...) {
    if (native->isCompleted()) {
      if (const auto error = native->exception())
        throw failure(error, call, *group.connections, *group.peer_monitor);
      return;
    }
    CollectiveWork::start(call, {native}, nullptr, group)->wait();
  }
}

}  // namespace torch::comms::gloo
