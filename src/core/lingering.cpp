#include "core/lingering.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/awaited_threads.hpp"
#include "base/log.hpp"
#include "base/proc_net_tcp.hpp"
#include "core/store_adapter.hpp"

namespace torch::comms {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kKeepAliveLimit{10'000};
constexpr milliseconds kLongestPause{100};  // between two looks
constexpr milliseconds kToEnd{1'000};       // for the last look, and the server

base::AwaitedThreads lingering(kKeepAliveLimit + kToEnd);

void await_guests(uint16_t port) {
  const auto until = Clock::now() + kKeepAliveLimit;
  milliseconds pause{1};
  while (const int guests = base::count_remote_connections(port)) {
    if (Clock::now() >= until) {
      base::log(base::LogLevel::kInfo, "lets go of the store at port " + std::to_string(port) +
                                           " of this process, to which other processes have " +
                                           std::to_string(guests) + " connections");
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace

void linger(c10::intrusive_ptr<c10d::Store> store) {
  const auto root = tcp_root(store);
  const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(root.get());
  if (tcp == nullptr) return;
  lingering.run([port = tcp->getPort(), store = std::move(store)] {
    try {
      await_guests(port);
    } catch (const std::exception& e) {
      base::log(base::LogLevel::kWarning, std::string("a store is not kept: ") + e.what());
    }
  });
}

}  // namespace torch::comms
