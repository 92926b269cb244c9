#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/beside/peer_monitor.hpp"
#include "backends/gloo/alarm.hpp"
#include "backends/gloo/call.hpp"
#include "backends/gloo/peers.hpp"
#include "backends/gloo/tally.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "core/inflight_counter.hpp"

namespace torch::comms::gloo {

struct Group;
struct Services;

// One message that has been posted to Gloo.
struct Message {
  NativeWorkPtr native;
  int peer;  // or kAnySource
  bool sends;
};

// A send, a receive or a batch of them. Gloo moves the data by itself, but tells that it is done
// only to a thread that blocks for it: the one that calls poll_once(), else the Attendant's.
//
// At the limit nothing of the connection is harmed: the peers whose messages are missing are given
// up (Peers), everything else goes on.
class MessageWork final : public TorchWork, public Interruptible {
 public:
  MessageWork(const Call& call, std::vector<Message> messages, const Group& group);

  void wait() override;
  std::chrono::milliseconds getTimeout() const override { return call_.limit; }
  int source() const noexcept override { return source_.load(); }

  // Blocks inside Gloo until the work ended, or `until`, or interrupt(). True if it ended. One
  // thread at a time.
  bool attend(Alarm& alarm, Clock::time_point until) noexcept;
  void interrupt() noexcept override;

  // service() to the end on this thread, for a synchronous call. Throws the operation's error.
  void complete_here(Services& services);

 protected:
  void poll() noexcept override;

 private:
  friend class Attendant;

  void finish(const std::exception_ptr& error) noexcept;
  void keep_from(size_t first);
  // Of a peer that has closed the communicator, without which the next message will never be done.
  std::optional<CommError> hopeless() const;
  // Looks once more at each open message and gives up the peers of those that are not done.
  std::exception_ptr time_out(Alarm& alarm);
  bool look_at_next(Alarm& alarm, Clock::time_point last_moment);
  enum class Step { kDone, kInterrupted };
  Step wait_for_next(Alarm& alarm, Clock::time_point until);

  const Call call_;
  const uint64_t fork_generation_;
  std::mutex mutex_;               // guards messages_ where another thread looks: interrupt()
  std::vector<Message> messages_;  // emptied at the end
  std::atomic<size_t> next_{0};    // the message that is waited for; partner of interrupted_
  std::atomic<bool> interrupted_{false};
  std::atomic<int> source_{kAnySource};
  bool is_claimed_ = false;  // by a thread in poll_once(); guarded by the Attendant
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<Tally> tally_;
  std::shared_ptr<common::PeerMonitor> others_;
  InFlightCounter::Token ticket_;
  std::weak_ptr<Services> services_;  // weak: the Attendant's thread must not end itself
};

using MessageWorkPtr = c10::intrusive_ptr<MessageWork>;

}  // namespace torch::comms::gloo
