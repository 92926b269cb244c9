#include "transport/shm/call.hpp"

#include <cerrno>
#include <cstring>

#include "base/system_error.hpp"
#include "transport/connect_retry.hpp"

namespace torch::comms::transport::shm {
namespace {

constexpr std::chrono::milliseconds kFullQueue{2};  // before the next try

}  // namespace

base::FileDescriptor Call::dial(Time now) {
  again_ = Time::max();
  auto socket = connect_to(address_);
  if (socket && send_hello(socket.get(), hello_, segment_ ? segment_->file().get() : -1)) {
    if (segment_) return socket;
    told_ = true;
    return {};
  }
  const int error = errno;
  if (!socket && error == EAGAIN)
    again_ = now + kFullQueue;
  else if (socket && is_closed_by_peer(error))
    turned_away(now);
  else
    give_up(error);
  return {};
}

bool Call::ended(Time now) {
  if (is_taken()) return false;
  turned_away(now);
  return true;
}

bool Call::is_taken() const noexcept {
  if (!segment_) return told_;
  return (segment_->rest(1).load(std::memory_order_acquire) & Rest::kHere) != 0;
}

void Call::turned_away(Time now) {
  if (turned_away_ < kRetryDelays.size())
    again_ = now + kRetryDelays[turned_away_++];
  else
    failed_ = "no connection to it: it turns this rank away, it may have no descriptor left";
}

void Call::give_up(int error) {
  failed_ = std::string("no connection to it: ") + std::strerror(error);
  if (base::is_resource_exhausted(error)) code_ = Errc::kResourceExhausted;
}

}  // namespace torch::comms::transport::shm
