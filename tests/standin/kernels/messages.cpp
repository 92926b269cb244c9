#include "standin/kernels/messages.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

namespace torch::comms::standin {
namespace {

// The messages of one rank and direction, of which one is under way.
class Route {
 public:
  Route(Launch& launch, int peer, bool receives)
      : launch_(launch),
        peer_(peer),
        receives_(receives),
        inbox_(receives ? launch.message(launch.rank(), peer)
                        : launch.message(peer, launch.rank())) {}

  int peer() const { return peer_; }
  bool is_of(const kernels::Message& message) const {
    return message.peer == peer_ && (message.receives != 0) == receives_;
  }
  void add(const kernels::Message& message) { messages_.push_back(message); }
  bool is_done() const { return next_ == messages_.size(); }

  // Moves one chunk, if it is there or there is room for it. False if nothing could be done.
  bool move() {
    if (is_done() || inbox_.sent.load() != inbox_.taken.load() + (receives_ ? 1 : 0)) return false;
    const auto& message = messages_[next_];
    const size_t bytes = std::min(kChunkBytes, message.bytes - at_);
    auto* const place = static_cast<std::byte*>(message.data) + at_;
    if (receives_ && inbox_.whole_bytes != message.bytes) {
      launch_.mismatch(peer_);
      return false;
    }
    if (!receives_) inbox_.whole_bytes = message.bytes;
    if (bytes > 0)
      std::memcpy(receives_ ? place : inbox_.data, receives_ ? inbox_.data : place, bytes);
    ++(receives_ ? inbox_.taken : inbox_.sent);
    at_ += bytes;
    if (at_ == message.bytes) ++next_, at_ = 0;
    return true;
  }

 private:
  Launch& launch_;
  const int peer_;
  const bool receives_;
  Inbox& inbox_;
  std::vector<kernels::Message> messages_;
  size_t next_ = 0, at_ = 0;
};

}  // namespace

void run(Launch& launch, std::span<const kernels::Message> messages) {
  std::deque<Route> routes;
  for (const auto& message : messages) {
    auto found = std::ranges::find_if(routes, [&](const Route& r) { return r.is_of(message); });
    if (found == routes.end()) {
      routes.emplace_back(launch, message.peer, message.receives != 0);
      found = routes.end() - 1;
    }
    found->add(message);
  }
  for (;;) {
    const auto late = std::ranges::find_if_not(routes, &Route::is_done);
    if (late == routes.end() || !launch.goes_on()) return;
    bool moved = false;
    for (auto& route : routes) moved = route.move() || moved;
    if (!moved && !launch.waits(late->peer())) return;
  }
}

}  // namespace torch::comms::standin
