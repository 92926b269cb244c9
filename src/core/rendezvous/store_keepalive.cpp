#include "core/rendezvous/store_keepalive.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/concurrency/executor.hpp"
#include "base/net/proc_net_tcp.hpp"
#include "base/os/log.hpp"
#include "core/rendezvous/store_adapter.hpp"

namespace torch::comms {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kKeepAliveTimeout{10'000};
constexpr milliseconds kMaxPollInterval{100};  // between two checks
constexpr milliseconds kShutdownGrace{1'000};  // for the last check, and the end of the server

base::TaskGroup keepalives(kKeepAliveTimeout + kShutdownGrace);

void wait_for_remote_clients(uint16_t port) {
  const auto until = Clock::now() + kKeepAliveTimeout;
  milliseconds pause{1};
  while (const int connection_count = base::count_remote_connections(port)) {
    if (Clock::now() >= until) {
      base::log(base::LogLevel::kInfo, "the store at port " + std::to_string(port) +
                                           " of this process is released, although other processes "
                                           "still have " +
                                           std::to_string(connection_count) + " connections to it");
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kMaxPollInterval);
  }
}

}  // namespace

void keep_store_alive(c10::intrusive_ptr<c10d::Store> store) {
  const auto root = tcp_root(store);
  const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(root.get());
  if (tcp == nullptr) return;
  keepalives.run([port = tcp->getPort(), store = std::move(store)] {
    try {
      wait_for_remote_clients(port);
    } catch (const std::exception& e) {
      base::log(base::LogLevel::kWarning,
                std::string("cannot keep a store alive for its clients: ") + e.what());
    }
  });
}

}  // namespace torch::comms
