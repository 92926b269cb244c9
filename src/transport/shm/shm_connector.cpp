#include "transport/shm/shm_connector.hpp"

#include <cerrno>
#include <cstring>

#include "base/os/system_error.hpp"
#include "transport/connect/connect_retry.hpp"

namespace torch::comms::transport::shm {
namespace {

constexpr std::chrono::milliseconds kFullQueue{2};  // before a retry

}  // namespace

base::FileDescriptor ShmConnector::connect(Time now) {
  retry_at_ = Time::max();
  auto socket = connect_to(address_);
  if (socket && send_hello(socket.get(), hello_, segment_ ? segment_->file().get() : -1)) {
    if (segment_) return socket;
    has_sent_reason_ = true;
    return {};
  }
  const int error = errno;
  if (!socket && error == EAGAIN)
    retry_at_ = now + kFullQueue;
  else if (socket && is_closed_by_peer(error))
    on_rejected(now);
  else
    fail(error);
  return {};
}

bool ShmConnector::on_socket_ended(Time now) {
  if (is_accepted()) return false;
  on_rejected(now);
  return true;
}

bool ShmConnector::is_accepted() const noexcept {
  if (!segment_) return has_sent_reason_;
  return (segment_->sleep_flags(1).load(std::memory_order_acquire) & SleepFlags::kAttached) != 0;
}

void ShmConnector::on_rejected(Time now) {
  if (rejections_ < kRetryDelays.size())
    retry_at_ = now + kRetryDelays[rejections_++];
  else
    error_text_ = "cannot connect by shm: the peer closed the connection " +
                  std::to_string(kRetryDelays.size() + 1) +
                  " times; its process may have no free descriptor (ulimit -n)";
}

void ShmConnector::fail(int error) {
  error_text_ = std::string("cannot connect by shm: ") + std::strerror(error);
  if (base::is_resource_exhausted(error)) error_code_ = Errc::kResourceExhausted;
}

}  // namespace torch::comms::transport::shm
