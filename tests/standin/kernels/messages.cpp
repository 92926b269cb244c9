#include "standin/kernels/messages.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "ctran/kernels/messages/messages.hpp"

namespace torch::comms::standin {
namespace {

std::atomic<int64_t> straight{0};

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
  bool is_of(const kernels::KernelMessage& message) const {
    return message.peer == peer_ && (message.is_receive != 0) == receives_;
  }
  void add(const kernels::KernelMessage& message) { messages_.push_back(message); }
  bool is_done() const { return next_ == messages_.size(); }

  // Moves one chunk, if it is there or there is room for it, or what goes before. False if nothing
  // could be done.
  bool move() {
    if (is_done() || inbox_.sent.load() != inbox_.taken.load() + (receives_ ? 1 : 0)) return false;
    const auto& message = messages_[next_];
    const auto parcel = kernels::transfer_of(static_cast<char*>(message.data), message.bytes,
                                             static_cast<char*>(message.zero_copy_target),
                                             message.requests_zero_copy);
    return receives_ ? take(parcel) : give(parcel);
  }

 private:
  bool give(const kernels::MessageTransfer& parcel) {
    inbox_.whole_bytes = parcel.bytes;
    inbox_.asks = parcel.requests_zero_copy && !agreed_;
    if (inbox_.asks) {
      agreed_ = true;
      ++inbox_.sent;
      return true;
    }
    const bool is_straight = parcel.requests_zero_copy && inbox_.place != nullptr;
    const size_t bytes = is_straight ? parcel.bytes : std::min(kChunkBytes, parcel.bytes - at_);
    if (is_straight) ++straight;
    if (bytes > 0)
      std::memcpy(is_straight ? static_cast<void*>(inbox_.place) : inbox_.data, parcel.data + at_,
                  bytes);
    ++inbox_.sent;
    moved(parcel, bytes);
    return true;
  }
  bool take(const kernels::MessageTransfer& parcel) {
    if (inbox_.whole_bytes != parcel.bytes) {
      launch_.mismatch(peer_);
      return false;
    }
    if (inbox_.asks) {
      inbox_.place = parcel.zero_copy_target;
      agreed_ = parcel.zero_copy_target != nullptr;
      ++inbox_.taken;
      return true;
    }
    const size_t bytes = agreed_ ? parcel.bytes : std::min(kChunkBytes, parcel.bytes - at_);
    if (bytes > 0 && !agreed_) std::memcpy(parcel.data + at_, inbox_.data, bytes);
    ++inbox_.taken;
    moved(parcel, bytes);
    return true;
  }
  void moved(const kernels::MessageTransfer& parcel, size_t bytes) {
    at_ += bytes;
    if (at_ < parcel.bytes) return;
    ++next_;
    at_ = 0;
    agreed_ = false;
  }

  Launch& launch_;
  const int peer_;
  const bool receives_;
  Inbox& inbox_;
  std::vector<kernels::KernelMessage> messages_;
  size_t next_ = 0, at_ = 0;
  bool agreed_ = false;  // a send: it has asked; a receive: its peer writes it
};

}  // namespace

int64_t written_straight() noexcept { return straight; }

void run(Launch& launch, std::span<const kernels::KernelMessage> messages) {
  std::deque<Route> routes;
  for (const auto& message : messages) {
    auto found = std::ranges::find_if(routes, [&](const Route& r) { return r.is_of(message); });
    if (found == routes.end()) {
      routes.emplace_back(launch, message.peer, message.is_receive != 0);
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
