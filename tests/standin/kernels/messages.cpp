#include "standin/kernels/messages.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "ctran/kernels/messages/messages.hpp"

namespace torch::comms::standin {
namespace {

std::atomic<int64_t> zero_copy_count{0};

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
    const auto transfer = kernels::transfer_of(static_cast<char*>(message.data), message.bytes,
                                               static_cast<char*>(message.zero_copy_target),
                                               message.requests_zero_copy);
    return receives_ ? take(transfer) : give(transfer);
  }

 private:
  bool give(const kernels::MessageTransfer& transfer) {
    inbox_.whole_bytes = transfer.bytes;
    inbox_.asks = transfer.requests_zero_copy && !agreed_;
    if (inbox_.asks) {
      agreed_ = true;
      ++inbox_.sent;
      return true;
    }
    const bool is_zero_copy = transfer.requests_zero_copy && inbox_.place != nullptr;
    const size_t bytes =
        is_zero_copy ? transfer.bytes : std::min(kChunkBytes, transfer.bytes - at_);
    if (is_zero_copy) ++zero_copy_count;
    if (bytes > 0)
      std::memcpy(is_zero_copy ? static_cast<void*>(inbox_.place) : inbox_.data,
                  transfer.data + at_, bytes);
    ++inbox_.sent;
    moved(transfer, bytes);
    return true;
  }
  bool take(const kernels::MessageTransfer& transfer) {
    if (inbox_.whole_bytes != transfer.bytes) {
      launch_.mismatch(peer_);
      return false;
    }
    if (inbox_.asks) {
      inbox_.place = transfer.zero_copy_target;
      agreed_ = transfer.zero_copy_target != nullptr;
      ++inbox_.taken;
      return true;
    }
    const size_t bytes = agreed_ ? transfer.bytes : std::min(kChunkBytes, transfer.bytes - at_);
    if (bytes > 0 && !agreed_) std::memcpy(transfer.data + at_, inbox_.data, bytes);
    ++inbox_.taken;
    moved(transfer, bytes);
    return true;
  }
  void moved(const kernels::MessageTransfer& transfer, size_t bytes) {
    at_ += bytes;
    if (at_ < transfer.bytes) return;
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

int64_t zero_copy_messages() noexcept { return zero_copy_count; }

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
