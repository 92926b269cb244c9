#include "core/rendezvous/private_store.hpp"

#include <charconv>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/concurrency/per_process.hpp"
#include "base/os/host.hpp"
#include "base/text/utf8.hpp"
#include "bootstrap/ranks.hpp"
#include "core/rendezvous/shared_store.hpp"
#include "core/rendezvous/tcp_probe.hpp"
#include "core/rendezvous/tcp_store.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;

// The text that rank 0 publishes: "ok <port> <address> <loopback identity>", or "failed <why>".
struct StoreAdvertisement {
  uint16_t port;
  std::string address, identity;

  std::string to_text() const {
    return "ok " + std::to_string(port) + " " + address + " " + identity;
  }
};

constexpr const char* kFailed = "failed ";

std::string next_field(std::string& text) {
  const auto space = text.find(' ');
  std::string field = text.substr(0, space);
  text.erase(0, space == std::string::npos ? space : space + 1);
  return field;
}

std::optional<StoreAdvertisement> parse(std::string text) {
  if (next_field(text) != "ok") return std::nullopt;
  const std::string port = next_field(text);
  StoreAdvertisement advert{.port = 0, .address = next_field(text), .identity = text};
  const auto [stop, code] = std::from_chars(port.data(), port.data() + port.size(), advert.port);
  const bool whole = code == std::errc{} && stop == port.data() + port.size();
  if (!whole || advert.port == 0 || advert.address.empty()) return std::nullopt;
  return advert;
}

// The private store that this process serves while one of its communicators uses it.
struct PrivateServer {
  std::mutex mutex;
  std::weak_ptr<SharedStore> store;
  uint16_t port = 0;
};

base::PerProcess<PrivateServer> private_server;

struct SharedServer {
  std::shared_ptr<SharedStore> store;
  uint16_t port;
};

SharedServer serve_privately(milliseconds timeout, Deadline deadline, const Context& context) {
  auto& server = private_server.get();
  const std::lock_guard lock(server.mutex);
  if (auto store = server.store.lock(); store && !store->is_lost()) return {store, server.port};
  auto served = serve_store(0, timeout, deadline, context);
  auto store = SharedStore::of(served.store);
  server.store = store;
  server.port = served.port;
  return {std::move(store), served.port};
}

c10::intrusive_ptr<c10d::Store> scoped(std::shared_ptr<SharedStore> store, const std::string& scope,
                                       milliseconds timeout) {
  auto polled = c10::make_intrusive<PolledStore>(std::move(store));
  polled->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>(scope, std::move(polled));
}

}  // namespace

PrivateStore publish_private_store(bootstrap::KeyValueStore& rendezvous_store,
                                   const std::string& key, const std::string& scope,
                                   const std::string& hint, milliseconds timeout, Deadline deadline,
                                   const Context& context) {
  try {
    auto served = serve_privately(timeout, deadline, context);
    const StoreAdvertisement advert{served.port, own_address(hint), base::loopback_identity()};
    rendezvous_store.set(key, advert.to_text());
    return {scoped(std::move(served.store), scope, timeout), tcp_url(advert.address, advert.port)};
    // On failure rank 0 publishes the reason; otherwise the peer ranks would wait until their
    // timeout.
  } catch (const CommError& e) {
    rendezvous_store.set(key, kFailed + e.why());
    throw;
  } catch (const std::exception& e) {  // includes Interrupted
    rendezvous_store.set(key, kFailed + std::string(e.what()));
    throw;
  }
}

PrivateStore join_private_store(bootstrap::KeyValueStore& rendezvous_store, const std::string& key,
                                const std::string& scope, milliseconds timeout, Deadline deadline,
                                const Context& context) {
  const std::string text = rendezvous_store.get(key, deadline.remaining());
  if (text.starts_with(kFailed))
    throw CommError(Errc::kPeerFailed,
                    "rank 0 could not open the communicator's own store: " +
                        text.substr(std::string(kFailed).size()),
                    context);
  const auto advert = parse(text);
  if (!advert)
    throw CommError(Errc::kPeerFailed,
                    "the store " + rendezvous_store.address() +
                        " returned a text that rank 0 did not write: '" +
                        std::string(base::utf8_prefix(text, 80)) + "'",
                    context);
  const bool is_local = advert->identity == base::loopback_identity();
  const std::string host = is_local ? "127.0.0.1" : advert->address;
  try {
    auto store = SharedStore::connect(host, advert->port, timeout, deadline, context);
    return {scoped(std::move(store), scope, timeout), tcp_url(host, advert->port)};
  } catch (const CommError& e) {
    throw CommError(
        e.code(),
        e.why() +
            ". Rank 0 serves the communicator's own store there, on a port that the operating "
            "system chose. Allow the port in the firewall, set MASTER_ADDR to rank 0's host, or "
            "pass a store with hint persistent_store=true",
        context);
  }
}

namespace {

// The time that rank 0 has after its timeout to publish the missing ranks to the peers.
constexpr milliseconds kResultTimeout{300};

constexpr const char* kConnectedKey = "connected/";  // followed by the rank
constexpr const char* kAcknowledgedKey =
    "heard/";  // followed by the number of ranks that know the result

// Publishes the failure and waits until the peers have read it, because the store ends with the
// error that rank 0 throws next.
void publish_connect_failure(bootstrap::KeyValueStore& own, const std::string& why) {
  own.set("left", why);
  const auto peer_count = own.add("connected", 0) - 1;
  try {
    if (peer_count > 0) own.get(kAcknowledgedKey + std::to_string(peer_count), kResultTimeout);
  } catch (const CommError&) {
    // A peer has failed as well, but the error `why` is more important.
  }
}

void wait_for_connections(bootstrap::KeyValueStore& own, int size,
                          const bootstrap::NamedTimeout& limit, Deadline deadline) {
  try {
    own.get("complete", deadline.remaining());
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    const auto absent = bootstrap::missing_ranks(own, kConnectedKey, size);
    if (absent.empty()) throw;
    const auto why =
        bootstrap::format_ranks(absent, size) +
        " did not connect to the communicator's own store in rank 0's process within " +
        bootstrap::format_duration(limit.duration);
    publish_connect_failure(own, why);
    throw CommError(Errc::kTimeout, why, {.culprits = absent});
  }
}

}  // namespace

void switch_to_private_store(bootstrap::KeyValueStore& own, int rank, int size,
                             const bootstrap::NamedTimeout& limit, Deadline deadline,
                             const std::function<void()>& release_rendezvous) {
  own.set(kConnectedKey + std::to_string(rank), "");
  if (own.add("connected", 1) == size) own.set("complete", "");
  if (rank == 0) {
    wait_for_connections(own, size, limit, deadline);
    release_rendezvous();
    own.set("left", "");
    // This process serves `own`, so the peers must have read the result before it may end.
    own.get(kAcknowledgedKey + std::to_string(size - 1), deadline.remaining());
    return;
  }
  release_rendezvous();
  const auto why_not = own.get("left", deadline.remaining() + kResultTimeout);
  own.set(kAcknowledgedKey + std::to_string(own.add("hearers", 1)), "");
  if (!why_not.empty()) throw CommError(Errc::kTimeout, why_not);
}

}  // namespace torch::comms
