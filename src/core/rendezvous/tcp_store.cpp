#include "core/rendezvous/tcp_store.hpp"

#include <algorithm>
#include <optional>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/comm/reverse_lookup.hpp"
#include "core/rendezvous/tcp_probe.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;

// How long a taken port is retried. Closing a server and opening the next one on its port may
// overlap, in another thread or in a process that is exiting.
constexpr milliseconds kPortRetryTimeout{1000};
constexpr milliseconds kConnectGrace{500};

// In places c10d counts timeouts in whole seconds, and takes zero as "no timeout".
milliseconds at_least_1s(milliseconds timeout) { return std::max(timeout, milliseconds(1000)); }

// `connect_timeout` is only the timeout of connecting; the store gets its own timeout later.
c10d::TCPStoreOptions options_for(uint16_t port, milliseconds connect_timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = at_least_1s(connect_timeout);
  return options;
}

std::string first_line(const c10::Error& e) {
  const std::string text = e.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

ServedStore open_server(uint16_t port, milliseconds timeout, Deadline deadline) {
  auto options = options_for(port, deadline.remaining());
  options.isServer = true;
  options.multiTenant = port != 0;
  return run_with_timeout(std::max(deadline.remaining(), kConnectGrace), [options, timeout] {
    // The client in this process uses loopback, because the name that peers use may not lead back
    // here.
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    store->setTimeout(at_least_1s(timeout));
    const uint16_t bound = store->getPort();
    return ServedStore{std::move(store), bound};
  });
}

// Connects to a running server. c10d retries for up to twice `connect_timeout`, which is only the
// timeout of connecting; `timeout` becomes the store's own timeout.
c10::intrusive_ptr<c10d::Store> connect_store(const std::string& host, uint16_t port,
                                              milliseconds connect_timeout, milliseconds timeout) {
  auto store = c10::make_intrusive<c10d::TCPStore>(host, options_for(port, connect_timeout));
  store->setTimeout(timeout);
  return store;
}

bool is_port_taken(const c10::Error& e) {
  const std::string text = e.what_without_backtrace();
  return text.find("EADDRINUSE") != std::string::npos ||
         text.find("address already in use") != std::string::npos ||
         text.find("Address already in use") != std::string::npos;
}

}  // namespace

std::string tcp_url(const std::string& host, uint16_t port) {
  return "tcp://" + host + ":" + std::to_string(port);
}

ServedStore serve_store(uint16_t port, milliseconds timeout, Deadline deadline,
                        const Context& context) {
  const std::string what =
      "cannot serve a store on port " + std::to_string(port) + " of this host: ";
  const Deadline port_deadline(std::min(kPortRetryTimeout, deadline.remaining()));
  while (true) {
    try {
      return open_server(port, timeout, deadline);
    } catch (const CallTimedOut&) {
      throw CommError(Errc::kTimeout, what + "the server did not start in time", context);
    } catch (const c10::DistError& e) {
      if (!is_port_taken(e)) throw CommError(Errc::kSystem, what + first_line(e), context);
      if (port_deadline.has_passed())
        throw CommError(
            Errc::kResourceExhausted,
            what +
                "another process, or a store of this process that does not share its "
                "port, uses it. Choose another MASTER_PORT, or pass that store as store=",
            context);
    }
    check_interrupt();
    std::this_thread::sleep_for(milliseconds(20));
  }
}

c10::intrusive_ptr<c10d::Store> join_store(const std::string& host, uint16_t port,
                                           milliseconds timeout, Deadline deadline,
                                           const Context& context, RefusedConnectPolicy refusal) {
  // The address is probed first, because c10d waits a second between its attempts, exceeds its
  // timeout, and prints a page for each.
  wait_until_reachable(host, port, deadline, context, refusal);
  std::optional<ReverseLookupTimer> lookup;
  const auto no_answer = [&] {
    const auto slow = lookup ? lookup->format_if_slow() : std::string();
    return CommError(Errc::kTimeout,
                     tcp_url(host, port) + " accepts connections but does not answer as a store: " +
                         (slow.empty() ? "its process is stopped, or something else listens there"
                                       : slow + ", for which stores wait at every connection"),
                     context);
  };
  const auto connect_timeout = deadline.remaining();
  const auto connect = [host, port, connect_timeout, timeout] {
    return connect_store(host, port, connect_timeout, at_least_1s(timeout));
  };
  try {
    // The check first runs after half a second; a faster connection is not slow.
    return run_with_timeout(connect_timeout + kConnectGrace, connect, [&] {
      if (!lookup) lookup.emplace(host);
    });
  } catch (const CallTimedOut&) {
    throw no_answer();
  } catch (const c10::DistError& e) {
    if (deadline.has_passed()) throw no_answer();
    throw CommError(
        Errc::kPeerFailed,
        tcp_url(host, port) + " accepts connections but is not a usable store: " + first_line(e),
        context);
  }
}

}  // namespace torch::comms
