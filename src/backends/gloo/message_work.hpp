#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/common/peer_monitor.hpp"
#include "backends/gloo/connection_state.hpp"
#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/message_counters.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "core/work/inflight_counter.hpp"

namespace torch::comms::gloo {

struct GlooGroup;
class MessageWaiter;

struct GlooMessage {
  NativeWorkPtr native;
  int peer;  // a rank, or kAnySource
  bool is_send;
};

// A send, a receive, or a batch of them. Gloo moves the data by itself, but reports completion only
// to a thread that blocks for the message. That thread is the caller of wait(), or otherwise the
// thread of the MessageWaiter.
//
// A timeout does not close the connection. The peers whose messages are missing are abandoned
// (ConnectionState); all other messages continue.
class MessageWork final : public TorchWork {
 public:
  MessageWork(const GlooCall& call, std::vector<GlooMessage> messages, const GlooGroup& group);

  void wait() override;
  std::chrono::milliseconds getTimeout() const override { return call_.timeout; }
  int source() const noexcept override { return source_.load(); }

  // Blocks inside Gloo until the work completes, `until` is reached, or cancel_wait() is called.
  // Returns: true if the work has completed.
  // Threads: one at a time.
  bool wait_until(Clock::time_point until) noexcept;
  // Ends the current wait inside Gloo, or the next wait if none is running, without harm to the
  // connection.
  // Threads: any.
  void cancel_wait() noexcept;

  // Waits on the calling thread until the work completes, for a synchronous call.
  // Throws: the error of the operation.
  void complete_synchronously(MessageWaiter& waiter);

 protected:
  void poll() noexcept override;

 private:
  friend class MessageWaiter;

  void finish(const std::exception_ptr& error) noexcept;
  void retain_unfinished_from(size_t first);
  // Returns: the error if peers have closed the communicator and the next message can therefore
  // never complete.
  std::optional<CommError> unmatched_peer_error() const;
  // Polls each pending message once more, and abandons the peers of those that are not done.
  std::exception_ptr time_out();
  bool poll_next(Clock::time_point deadline);
  enum class MessageWaitResult { kDone, kInterrupted };
  MessageWaitResult wait_for_next(Clock::time_point until);

  const GlooCall call_;
  const uint64_t fork_generation_;
  std::mutex mutex_;                   // guards messages_ against cancel_wait() on another thread
  std::vector<GlooMessage> messages_;  // empty after completion
  std::atomic<size_t> next_{0};        // index of the awaited message; ordered with interrupted_
  std::atomic<bool> interrupted_{false};
  std::atomic<int> source_{kAnySource};
  bool is_adopted_ = false;  // by a thread in wait(); guarded by the MessageWaiter's mutex
  std::shared_ptr<ConnectionState> connections_;
  std::shared_ptr<GlooMessageCounters> counters_;
  std::shared_ptr<common::PeerMonitor> peer_monitor_;
  InFlightCounter::Token token_;
  std::weak_ptr<MessageWaiter> waiter_;  // weak: its thread must not destroy it
};

using MessageWorkPtr = c10::intrusive_ptr<MessageWork>;

}  // namespace torch::comms::gloo
