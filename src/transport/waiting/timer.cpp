#include "transport/waiting/timer.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include "base/os/system_error.hpp"

namespace torch::comms::transport {
namespace {

timespec spec_of(std::chrono::nanoseconds time) noexcept {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  return {whole.count(), (time - whole).count()};
}

}  // namespace

Timer::Timer() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) throw base::system_error("timerfd");
}

void Timer::clear_expiration() const noexcept {
  uint64_t ticks = 0;
  [[maybe_unused]] const auto read = ::read(timer_.get(), &ticks, sizeof ticks);
}

void Timer::set(std::chrono::nanoseconds first, std::chrono::nanoseconds then) noexcept {
  const itimerspec when{.it_interval = spec_of(then), .it_value = spec_of(first)};
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

}  // namespace torch::comms::transport
