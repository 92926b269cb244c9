#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

namespace torch::comms::transport {

// Connections that have come and have not said yet who they are: ranks for a moment, or anything
// else for ever. Each is heard as it comes, and most ranks have said it by then: so of many that
// come at once none makes room for the others. Among those that say nothing the oldest does.
//
// A `Guest` is movable and has socket(). Threads: one at a time. Failure: what settle() throws.
template <class Guest>
class HandshakeQueue {
 public:
  static constexpr size_t kMaxWaiting = 256;

  // Hears one, and lets it in or turns it away: true. False while it has not said all. Does not
  // call back.
  using Handler = std::function<bool(Guest&)>;
  explicit HandshakeQueue(Handler settle) : handler_(std::move(settle)) {}

  // The one that has to make room, where there is one: to be turned away.
  [[nodiscard]] std::optional<Guest> add(Guest guest) {
    if (handler_(guest)) return std::nullopt;
    std::optional<Guest> oldest;
    if (waiting_.size() >= kMaxWaiting) {
      oldest = std::move(waiting_.front());
      waiting_.pop_front();
      if (handler_(*oldest)) oldest.reset();
    }
    waiting_.push_back(std::move(guest));
    return oldest;
  }

  // The one with this socket has said something, or has left; true if it is settled.
  bool poll_socket(int socket) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const auto& guest) { return guest.socket() == socket; });
    if (found == waiting_.end() || !handler_(*found)) return false;
    waiting_.erase(found);
    return true;
  }

  // The same of all of them.
  void poll_all() {
    for (auto next = waiting_.begin(); next != waiting_.end();)
      next = handler_(*next) ? waiting_.erase(next) : std::next(next);
  }

  // The oldest first.
  auto begin() const noexcept { return waiting_.begin(); }
  auto end() const noexcept { return waiting_.end(); }

 private:
  Handler handler_;
  std::deque<Guest> waiting_;
};

}  // namespace torch::comms::transport
