#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/common/peer_monitor.hpp"
#include "backends/gloo/connection_state.hpp"
#include "backends/gloo/deadline_timer.hpp"
#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/message_counters.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "core/work/inflight_counter.hpp"

namespace torch::comms::gloo {

struct GlooGroup;
struct GlooThreads;

// One message that has been posted to Gloo.
struct GlooMessage {
  NativeWorkPtr native;
  int peer;  // or kAnySource
  bool is_send;
};

// A send, a receive or a batch of them. Gloo moves the data by itself, but tells that it is done
// only to a thread that blocks for it: the one that calls poll_once(), else the MessageWaiter's.
//
// At the limit nothing of the connection is harmed: the peers whose messages are missing are given
// up (ConnectionState), everything else goes on.
class MessageWork final : public TorchWork, public Cancelable {
 public:
  MessageWork(const GlooCall& call, std::vector<GlooMessage> messages, const GlooGroup& group);

  void wait() override;
  std::chrono::milliseconds getTimeout() const override { return call_.timeout; }
  int source() const noexcept override { return source_.load(); }

  // Blocks inside Gloo until the work ended, or `until`, or cancel_wait(). True if it ended. One
  // thread at a time.
  bool wait_until(DeadlineTimer& alarm, Clock::time_point until) noexcept;
  void cancel_wait() noexcept override;

  // wait_until() to the end on this thread, for a synchronous call. Throws the operation's error.
  void complete_synchronously(GlooThreads& services);

 protected:
  void poll() noexcept override;

 private:
  friend class MessageWaiter;

  void finish(const std::exception_ptr& error) noexcept;
  void retain_unfinished_from(size_t first);
  // Of a peer that has closed the communicator, without which the next message will never be done.
  std::optional<CommError> unmatched_peer_error() const;
  // Looks once more at each open message and gives up the peers of those that are not done.
  std::exception_ptr time_out(DeadlineTimer& alarm);
  bool poll_next(DeadlineTimer& alarm, Clock::time_point last_moment);
  enum class MessageWaitResult { kDone, kInterrupted };
  MessageWaitResult wait_for_next(DeadlineTimer& alarm, Clock::time_point until);

  const GlooCall call_;
  const uint64_t fork_generation_;
  std::mutex mutex_;                   // guards messages_ where another thread looks: cancel_wait()
  std::vector<GlooMessage> messages_;  // emptied at the end
  std::atomic<size_t> next_{0};        // the message that is waited for; partner of interrupted_
  std::atomic<bool> interrupted_{false};
  std::atomic<int> source_{kAnySource};
  bool is_adopted_ = false;  // by a thread in poll_once(); guarded by the MessageWaiter
  std::shared_ptr<ConnectionState> connections_;
  std::shared_ptr<GlooMessageCounters> counters_;
  std::shared_ptr<common::PeerMonitor> peer_monitor_;
  InFlightCounter::Token token_;
  std::weak_ptr<GlooThreads> threads_;  // weak: the MessageWaiter's thread must not end itself
};

using MessageWorkPtr = c10::intrusive_ptr<MessageWork>;

}  // namespace torch::comms::gloo
