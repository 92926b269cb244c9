#pragma once

#include <chrono>

namespace torch::comms::monitor {

struct MonitorMessage;

// A time on a monotonic clock; the carrier chooses its origin.
using Moment = std::chrono::nanoseconds;
inline constexpr Moment kNever = Moment::max();

// Carries the messages of one group between the monitors of its ranks, and tells the time. The
// owner of a carrier passes what arrives to MonitorProtocol::on_message(), and ends of connections
// to on_peer_failed(). It calls on_time() at next_time().
// Threads: one at a time.
class MessageCarrier {
 public:
  // Sends `message` to `rank` of the group; connects to that rank first if there is no connection.
  // Messages to one rank arrive in their order. Drops the message if the rank cannot be reached;
  // on_peer_failed() reports that, now or before. The protocol calls it from its own functions, so
  // it must not call the protocol.
  // Blocks: never.
  // Throws: std::bad_alloc.
  virtual void send(int rank, const MonitorMessage& message) = 0;
  virtual Moment now() const noexcept = 0;

 protected:
  ~MessageCarrier() = default;
};

}  // namespace torch::comms::monitor
