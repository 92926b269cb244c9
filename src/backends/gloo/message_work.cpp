#include "backends/gloo/message_work.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "backends/gloo/gloo_group.hpp"
#include "backends/gloo/message_waiter.hpp"
#include "base/concurrency/timer.hpp"
#include "base/net/peer_error_text.hpp"
#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::gloo {
namespace {

using std::chrono::milliseconds;

// The timeout that Gloo gets for messages. When one expires, Gloo closes every connection of the
// communicator; cancel_wait() at the deadline does not.
constexpr milliseconds kForever = std::chrono::hours(24 * 365);
// The interval at which a blocked thread checks for an interrupt of the user (Ctrl-C).
constexpr milliseconds kMessageTick{100};
// The interval at which a thread that waits inside Gloo checks the monitor for failures.
constexpr milliseconds kPeerCheckInterval{100};
// The maximum time of the final polls of all messages of a batch together, and of one message.
constexpr milliseconds kFinalPollsTimeout{50};
constexpr milliseconds kFinalPollTimeout{1};

// Returns: why a message with a peer that has closed the communicator can never complete.
std::string closed_peer_text(const GlooMessage& message) {
  return message.is_send ? base::no_more_receives_text(message.peer)
                         : base::no_more_sends_text(message.peer);
}

}  // namespace

MessageWork::MessageWork(const GlooCall& call, std::vector<GlooMessage> messages,
                         const GlooGroup& group)
    : call_(call),
      fork_generation_(base::fork_generation()),
      messages_(std::move(messages)),
      connections_(group.connections),
      counters_(group.message_counters),
      peer_monitor_(group.peer_monitor),
      token_(group.in_flight),
      waiter_(group.message_waiter) {
  setStatus(WorkStatus::INPROGRESS);
}

void MessageWork::cancel_wait() noexcept {
  // The flag is set first. The waiting thread advances next_ first and reads the flag afterwards,
  // so at least one of the two threads sees the change of the other.
  interrupted_.store(true);
  std::lock_guard lock(mutex_);
  const size_t next = next_.load();
  if (next < messages_.size()) messages_[next].native->abort();
}

MessageWork::MessageWaitResult MessageWork::wait_for_next(Clock::time_point until) {
  const auto wakeup = base::schedule(until, [this] { cancel_wait(); });
  while (true) {
    if (interrupted_.exchange(false)) return MessageWaitResult::kInterrupted;
    // wait() returns false if cancel_wait() has interrupted it, possibly for a reason that no
    // longer holds.
    const auto& message = messages_[next_.load()];
    if (message.native->wait(kForever)) {
      const bool from_any = message.peer == kAnySource;
      const int peer = from_any ? message.native->sourceRank() : message.peer;
      if (from_any) source_.store(peer);
      counters_->end(message.is_send, peer, from_any);
      return MessageWaitResult::kDone;
    }
    if (Clock::now() >= until) return MessageWaitResult::kInterrupted;
  }
}

bool MessageWork::wait_until(Clock::time_point until) noexcept {
  std::exception_ptr error;
  try {
    until = std::min(until, call_.deadline());
    if (peer_monitor_->has_group_monitor())
      until = std::min(until, Clock::now() + kPeerCheckInterval);
    while (!error && next_.load() < messages_.size()) {
      if (peer_monitor_->has_failure())
        if (const auto why = peer_monitor_->failure(context(call_), kFailureGrace)) {
          retain_unfinished_from(next_.load());
          error = std::make_exception_ptr(*why);
          break;
        }
      if (const auto why = unmatched_peer_error()) {
        retain_unfinished_from(next_.load());
        error = std::make_exception_ptr(*why);
        break;
      }
      if (wait_for_next(until) == MessageWaitResult::kDone) {
        next_.fetch_add(1);
      } else if (Clock::now() >= call_.deadline()) {
        error = time_out();
        if (!error) break;
      } else {
        return false;
      }
    }
  } catch (...) {
    const size_t at = next_.load();
    const auto translated = translate_error(std::current_exception(), call_, messages_[at].peer);
    const auto& message = messages_[at];
    const auto has_left = [&] {
      return translated.code() == Errc::kPeerFailed &&
             peer_monitor_->peer_closes().contains(message.peer);
    };
    std::optional<CommError> why;
    if (!has_left()) why = peer_monitor_->wait_for_failure(context(call_), kFailureLookupTimeout);
    if (!why && has_left())
      why = common::peer_closed_error(message.peer, closed_peer_text(message), context(call_));
    error = std::make_exception_ptr(why ? *why : translated);
    retain_unfinished_from(at + 1);  // Gloo no longer uses the message that failed
  }
  finish(error);
  return true;
}

std::optional<CommError> MessageWork::unmatched_peer_error() const {
  const auto closed_peers = peer_monitor_->peer_closes();
  if (closed_peers.empty()) return std::nullopt;
  const auto& message = messages_[next_.load()];
  const auto cannot_complete = [&](int rank) {
    const auto found = closed_peers.find(rank);
    if (found == closed_peers.end() || !found->second.posted) return false;
    return message.is_send ? counters_->has_sent_all_to(rank, *found->second.posted)
                           : counters_->has_received_all_from(rank, *found->second.posted);
  };
  int peer = message.peer;
  bool is_unmatched = peer != kAnySource && cannot_complete(peer);
  if (peer == kAnySource) {
    is_unmatched = true;
    for (int rank = 0; rank < call_.comm->size; ++rank)
      is_unmatched = is_unmatched && (rank == call_.comm->rank || cannot_complete(rank));
    peer = closed_peers.begin()->first;
  }
  if (!is_unmatched) return std::nullopt;
  return common::peer_closed_error(peer, closed_peer_text({{}, peer, message.is_send}),
                                   context(call_));
}

// Gloo may still move the data of these messages.
void MessageWork::retain_unfinished_from(size_t first) {
  for (size_t i = first; i < messages_.size(); ++i)
    connections_->retain_unfinished(messages_[i].native);
}

bool MessageWork::poll_next(Clock::time_point deadline) {
  const auto poll_end = Clock::now() + kFinalPollTimeout;
  while (Clock::now() < std::min(poll_end, deadline))
    if (wait_for_next(poll_end) == MessageWaitResult::kDone) return true;
  return false;
}

std::exception_ptr MessageWork::time_out() {
  const auto deadline = Clock::now() + kFinalPollsTimeout;
  std::optional<CommError> error;
  for (; next_.load() < messages_.size(); next_.fetch_add(1)) {
    const auto& message = messages_[next_.load()];
    try {
      if (poll_next(deadline)) continue;
      if (!error)
        error = timeout_error(call_, ranks_of(message.peer), "",
                              peer_monitor_->wait_for_progress().text);
      // A receive with kAnySource would take the next message of any rank, so all peers are
      // abandoned.
      const bool from_any = message.peer == kAnySource;
      for (int peer = 0; peer < call_.comm->size; ++peer)
        if (from_any || peer == message.peer) connections_->abandon_peer(peer, error->context().op);
      connections_->retain_unfinished(message.native);
    } catch (...) {
      if (!error) error = translate_error(std::current_exception(), call_, message.peer);
    }
  }
  return error ? std::make_exception_ptr(*error) : nullptr;
}

void MessageWork::finish(const std::exception_ptr& error) noexcept {
  try {
    std::vector<GlooMessage> done;
    {
      std::lock_guard lock(mutex_);
      done.swap(messages_);
    }
    // Frees tensors, which may run code of the user. Therefore no lock is held, and the work is not
    // yet complete.
    done.clear();
    token_.release();
    setStatus(status_of(error), error);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              std::string("a hook of a completed work raised an error: ") + e.what());
  }
}

void MessageWork::complete_synchronously(MessageWaiter& waiter) {
  try {
    while (!wait_until(Clock::now() + kMessageTick)) check_interrupt();
  } catch (const Interrupted& e) {
    // The messages are already posted, so the MessageWaiter must complete them.
    waiter.add(MessageWorkPtr::unsafe_reclaim_from_nonowning(this));
    e.rethrow_cause();
  }
  rethrowIfFailed();
}

void MessageWork::wait() {
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked,
                    "this work was started before fork(); only the parent process can wait for it",
                    context(call_));
  runWaitPreHooks();
  // Without the waiter the communicator no longer exists; its destruction waits for its works
  // first.
  const auto waiter = isTerminal(status()) ? nullptr : waiter_.lock();
  while (waiter && !isTerminal(status())) {
    if (waiter->adopt(*this))
      complete_synchronously(*waiter);
    else if (!waitForTerminal(
                 kMessageTick))  // another thread has adopted the work and may return it
      check_interrupt_unwrapped();
  }
  runWaitPostHooks();
  rethrowIfFailed();
}

void MessageWork::poll() noexcept {
  if (fork_generation_ != base::fork_generation()) return;
  if (const auto waiter = waiter_.lock()) waiter->poll_soon(*this);
}

}  // namespace torch::comms::gloo
