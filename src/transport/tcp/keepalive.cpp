#include "transport/tcp/keepalive.hpp"

#include <sys/epoll.h>

namespace torch::comms::transport::tcp {
namespace {

constexpr int kChecksPerTimeout = 4;  // checks within the timeout

}  // namespace

std::chrono::nanoseconds Keepalive::unanswered_for(const base::TcpAckStatus& status,
                                                   Time now) noexcept {
  if (!status.is_ack_pending) since_.reset();
  // The last acknowledgement may also be from long before any data were pending.
  else if (!since_ || now - status.since_last_ack > *since_)
    since_ = now;
  return since_ ? now - *since_ : std::chrono::nanoseconds(0);
}

KeepaliveWatch::KeepaliveWatch(Poller& poller, std::chrono::milliseconds limit) : timeout_(limit) {
  if (timeout_.count() > 0) poller.add(timer_.emplace().get(), EPOLLIN, *this);
}

void KeepaliveWatch::configure(int socket) const noexcept {
  (base::tcp_ack_status(socket) ? base::set_keepalive : base::set_keepalive_and_user_timeout)(
      socket, timeout_);
}

void KeepaliveWatch::on_ready(int, uint32_t) {
  timer_->clear_expiration();
  const auto now = std::chrono::steady_clock::now();
  bool has_unacknowledged = false;
  for (auto* client : clients_) has_unacknowledged |= client->check_keepalive(now, timeout_);
  if (!has_unacknowledged) set_ticking(false);
}

void KeepaliveWatch::set_ticking(bool on) noexcept {
  is_ticking_ = on;
  if (on)
    timer_->every(timeout_ / kChecksPerTimeout);
  else
    timer_->stop();
}

}  // namespace torch::comms::transport::tcp
