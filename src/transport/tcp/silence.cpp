#include "transport/tcp/silence.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/system_error.hpp"

namespace torch::comms::transport::tcp {
namespace {

constexpr int kLooks = 4;  // within the limit

}  // namespace

std::chrono::nanoseconds Silence::after(const base::Answers& answers, Time now) noexcept {
  if (!answers.owed) since_.reset();
  // Also the last answer may be from long before anything was owed.
  else if (!since_ || now - answers.last > *since_)
    since_ = now;
  return since_ ? now - *since_ : std::chrono::nanoseconds(0);
}

SilenceWatch::SilenceWatch(Poller& poller, std::chrono::milliseconds limit) : limit_(limit) {
  if (limit_.count() <= 0) return;
  timer_ = base::FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) throw base::system_error("timerfd");
  poller.add(timer_.get(), EPOLLIN, *this);
}

void SilenceWatch::tune(int socket) const noexcept {
  (base::answers_of(socket) ? base::tune_for_pauses : base::tune)(socket, limit_);
}

void SilenceWatch::on_ready(int, uint32_t) {
  uint64_t ticks = 0;
  [[maybe_unused]] const auto read = ::read(timer_.get(), &ticks, sizeof ticks);
  const auto now = std::chrono::steady_clock::now();
  bool owed = false;
  for (auto* watched : watched_) owed |= watched->look(now, limit_);
  if (!owed) tick(false);
}

void SilenceWatch::tick(bool on) noexcept {
  ticks_ = on;
  itimerspec often{};
  const std::chrono::nanoseconds gap = on ? limit_ / kLooks : std::chrono::milliseconds(0);
  const auto whole = std::chrono::floor<std::chrono::seconds>(gap);
  often.it_value = often.it_interval = {whole.count(), (gap - whole).count()};
  ::timerfd_settime(timer_.get(), 0, &often, nullptr);
}

}  // namespace torch::comms::transport::tcp
