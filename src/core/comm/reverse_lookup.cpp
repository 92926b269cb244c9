#include "core/comm/reverse_lookup.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>

#include "base/concurrency/executor.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSlow{200};

// Queries the name of an address as torch's stores do.
void look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  char name[NI_MAXHOST];
  ::getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof name, nullptr, 0, 0);
}

}  // namespace

struct ReverseLookupTimer::LookupMeasurement {
  std::string host;
  Clock::time_point begin = Clock::now();
  std::atomic<int64_t> took_ms{-1};  // -1: not finished yet

  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  }
};

ReverseLookupTimer::ReverseLookupTimer(const std::string& host) {
  if (host.empty()) return;
  measurement_ = std::make_shared<LookupMeasurement>();
  measurement_->host = host;
  base::Executor::process().run_or_inline([measurement = measurement_] {
    look_up(measurement->host);
    measurement->took_ms = measurement->elapsed().count();
  });
}

std::string ReverseLookupTimer::format_if_slow() const {
  if (!measurement_) return {};
  const auto took = milliseconds(measurement_->took_ms.load());
  const auto so_far = took.count() < 0 ? measurement_->elapsed() : took;
  if (so_far < kSlow) return {};
  const auto time = bootstrap::format_duration(so_far);
  if (took.count() < 0)
    return "the name server has not answered for " + measurement_->host + " within " + time;
  return "the name server took " + time + " for " + measurement_->host;
}

}  // namespace torch::comms
