#include "core/rendezvous/member_store.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/os/env.hpp"
#include "base/os/host.hpp"
#include "base/os/log.hpp"
#include "base/text/hash.hpp"
#include "bootstrap/launcher.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/rendezvous/master_store.hpp"
#include "core/rendezvous/membership_proposals.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/shared_store.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous/tcp_probe.hpp"
#include "core/rendezvous/tcp_store.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kLocalStoreTimeout{500};  // for a store without an address, which is local
constexpr const char* kHere = "here";            // kind of the key in a store without an address

constexpr const char* kWhatToDo =
    "Pass new_comm(store=...) a TCPStore that all members can reach. A communicator that is made "
    "with size 1 (TORCHCOMM_RANK=0, TORCHCOMM_SIZE=1) and without a store serves one itself";

// Returns: a hash that is equal for processes that reach each other by 127.0.0.1; never 0.
uint64_t own_loopback() {
  uint64_t hash = base::kFnvOffsetBasis;
  for (const char c : base::loopback_identity())
    hash = base::fnv1a_add_byte(hash, static_cast<uint8_t>(c));
  return std::max<uint64_t>(hash, 1);
}

StorePtr serve_own_store(const CommOptions& options, InitHandleInfo& self, const Context& context) {
  const auto hint = base::env_text("MASTER_ADDR").value_or("");
  auto served = serve_store(0, timeout_or_default(options.timeout),
                            Deadline(init_timeout(options).duration), context);
  self.host = own_address(hint);
  self.port = served.port;
  self.loopback = own_loopback();
  return std::move(served.store);
}

StorePtr find_store(const CommOptions& options, InitHandleInfo& self, const Context& context) {
  if (options.store) {
    auto store = tcp_root(options.store);
    self.set_store_address(store_address(store));
    return store;
  }
  const auto launch = bootstrap::discover();
  if (launch.size == 1) return serve_own_store(options, self, context);
  auto found = open_master_store(launch, timeout_or_default(options.timeout),
                                 Deadline(init_timeout(options).duration), context);
  self.host = found.master.host;
  self.port = found.master.port;
  return std::move(found.store);
}

std::string who(const ReconfigureMembers& members, size_t rank) {
  return "rank " + std::to_string(rank) + " of this list (" + members.handles[rank].to_text() + ")";
}

// Requires that all members without addresses use `store`.
void require_at(const StorePtr& store, const ReconfigureMembers& members, const Context& context) {
  StoreKeyValue keys(store, Deadline(kLocalStoreTimeout), context);
  for (size_t rank = 0; rank < members.handles.size(); ++rank)
    if (!keys.has({member_key(kHere, members.handles[rank])}))
      throw CommError(Errc::kInvalidArgument,
                      "the handle of " + who(members, rank) +
                          " has no address, and that member does not use this one's store, " +
                          store_address(store) + ". " + kWhatToDo,
                      context);
}

}  // namespace

StorePtr open_member_store(const std::string& name, const CommOptions& options,
                           InitHandleInfo& self) {
  const Context context{.op = "new_comm", .comm = name};
  try {
    auto store = find_store(options, self, context);
    if (self.host.empty())
      StoreKeyValue(store, Deadline(init_timeout(options).duration), context)
          .set(member_key(kHere, self), "");
    return store;
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    throw CommError(e.code(), "the store for reconfigure(): " + e.why(), context);
  }
}

void require_reachable_store(const ReconfigureMembers& members, const StorePtr& store,
                             const Context& context) {
  if (members.size() < 2) return;
  const auto refuse = [&](const std::string& why) {
    throw CommError(Errc::kInvalidArgument, why + ". " + kWhatToDo, context);
  };
  const auto& handles = members.handles;
  const auto none = std::ranges::find_if(handles, [](const auto& h) { return h.host.empty(); });
  if (none == handles.end()) {
    const auto& first = handles.front();
    if (first.loopback == 0 || !is_loopback(first.host)) return;
    const auto far = std::ranges::find_if(
        handles, [&](const auto& h) { return h.loopback != 0 && h.loopback != first.loopback; });
    if (far != handles.end())
      refuse("members meet at the store of rank 0 of this list (" + first.to_text() +
             "), whose host has no address but loopback; " +
             who(members, static_cast<size_t>(far - handles.begin())) + " is on another host");
    return;
  }
  const bool has_any = std::ranges::any_of(handles, [](const auto& h) { return !h.host.empty(); });
  if (has_any)
    refuse("the handle of " + who(members, static_cast<size_t>(none - handles.begin())) +
           " has no address, and those of other members have one: their stores differ");
  try {
    require_at(store, members, context);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    if (e.code() == Errc::kInvalidArgument) throw;
    // The store does not work; the members that meet there report that.
    base::log(base::LogLevel::kDebug, e.what());
  }
}

StorePtr join_member_store(const InitHandleInfo& member, milliseconds timeout, Deadline deadline,
                           const Context& context) {
  const bool is_local = member.loopback != 0 && member.loopback == own_loopback();
  const std::string host = is_local ? "127.0.0.1" : member.host;
  const auto port = static_cast<uint16_t>(member.port);
  std::shared_ptr<SharedStore> shared;
  try {
    shared = SharedStore::connect(
        host, port, timeout, deadline, context,
        member.loopback != 0 ? RefusedConnectPolicy::kFail : RefusedConnectPolicy::kRetry);
  } catch (const CommError& e) {
    if (member.loopback == 0 || e.code() != Errc::kPeerFailed) throw;
    throw CommError(Errc::kPeerFailed,
                    "the store of " + member.to_text() + " at tcp://" + host + ":" +
                        std::to_string(port) +
                        " was closed: the process or the communicator of that member has ended",
                    context);
  }
  auto store = c10::make_intrusive<PolledStore>(std::move(shared));
  store->setTimeout(timeout);
  return store;
}

}  // namespace torch::comms
