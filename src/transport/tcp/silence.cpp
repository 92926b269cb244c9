#include "transport/tcp/silence.hpp"

#include <sys/epoll.h>

namespace torch::comms::transport::tcp {
namespace {

constexpr int kLooks = 4;  // within the limit

}  // namespace

std::chrono::nanoseconds Silence::after(const base::TcpAckStatus& answers, Time now) noexcept {
  if (!answers.is_ack_pending) since_.reset();
  // Also the last answer may be from long before anything was owed.
  else if (!since_ || now - answers.since_last_ack > *since_)
    since_ = now;
  return since_ ? now - *since_ : std::chrono::nanoseconds(0);
}

SilenceWatch::SilenceWatch(Poller& poller, std::chrono::milliseconds limit) : limit_(limit) {
  if (limit_.count() > 0) poller.add(timer_.emplace().get(), EPOLLIN, *this);
}

void SilenceWatch::tune(int socket) const noexcept {
  (base::tcp_ack_status(socket) ? base::set_keepalive : base::set_keepalive_and_user_timeout)(
      socket, limit_);
}

void SilenceWatch::on_ready(int, uint32_t) {
  timer_->clear_expiration();
  const auto now = std::chrono::steady_clock::now();
  bool owed = false;
  for (auto* watched : watched_) owed |= watched->look(now, limit_);
  if (!owed) tick(false);
}

void SilenceWatch::tick(bool on) noexcept {
  ticks_ = on;
  if (on)
    timer_->every(limit_ / kLooks);
  else
    timer_->stop();
}

}  // namespace torch::comms::transport::tcp
