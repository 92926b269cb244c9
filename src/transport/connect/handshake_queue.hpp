#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

namespace torch::comms::transport {

// Holds accepted connections that have not completed the handshake. They may be ranks, or anything
// else that connects, so at most kMaxWaiting are kept. Each connection is read as soon as it is
// accepted, and most ranks have sent their handshake by then. So ranks that connect at the same
// time do not displace each other. When the queue is full, the oldest connection must be closed.
//
// A `PendingConnection` is movable and has socket().
// Throws: what the handler throws.
// Threads: one at a time.
template <class PendingConnection>
class HandshakeQueue {
 public:
  static constexpr size_t kMaxWaiting = 256;

  // Reads from a connection and accepts or rejects it.
  // Returns: whether it was accepted or rejected; false while the handshake is incomplete. Must not
  // call this queue.
  using Handler = std::function<bool(PendingConnection&)>;
  explicit HandshakeQueue(Handler handler) : handler_(std::move(handler)) {}

  // Adds a connection.
  // Returns: the oldest connection, which the caller must reject, if the queue was full.
  [[nodiscard]] std::optional<PendingConnection> add(PendingConnection pending) {
    if (handler_(pending)) return std::nullopt;
    std::optional<PendingConnection> oldest;
    if (waiting_.size() >= kMaxWaiting) {
      oldest = std::move(waiting_.front());
      waiting_.pop_front();
      if (handler_(*oldest)) oldest.reset();
    }
    waiting_.push_back(std::move(pending));
    return oldest;
  }

  // Handles an event of a waiting connection: data have arrived, or the peer has closed it.
  // Returns: whether it was accepted or rejected.
  bool poll_socket(int socket) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& pending) {
      return pending.socket() == socket;
    });
    if (found == waiting_.end() || !handler_(*found)) return false;
    waiting_.erase(found);
    return true;
  }

  // Calls the handler for all waiting connections.
  void poll_all() {
    for (auto next = waiting_.begin(); next != waiting_.end();)
      next = handler_(*next) ? waiting_.erase(next) : std::next(next);
  }

  // Iterates over waiting connections, the oldest first.
  auto begin() const noexcept { return waiting_.begin(); }
  auto end() const noexcept { return waiting_.end(); }

 private:
  Handler handler_;
  std::deque<PendingConnection> waiting_;
};

}  // namespace torch::comms::transport
