#include "backends/gloo/gloo_device.hpp"

#include <ifaddrs.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/common/peer_monitor.hpp"
#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "base/os/env.hpp"
#include "base/os/host.hpp"
#include "base/os/log.hpp"
#include "base/os/system_error.hpp"
#include "core/options/hint_table.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous/tcp_probe.hpp"

namespace torch::comms::gloo {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

// The number of file descriptors that a Gloo device opens, in addition to one socket per peer.
// Without them, Gloo may terminate the process.
constexpr size_t kDeviceDescriptors = 8;
// The number of file descriptors that the monitor opens meanwhile, before it connects to neighbors.
constexpr size_t kSideChannelDescriptors = 4;

std::string interfaces_here() {
  std::set<std::string> names;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return "(cannot be listed)";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  for (const auto* i = first; i != nullptr; i = i->ifa_next) names.insert(i->ifa_name);
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The text of a setting, and the name of the hint or variable that it comes from.
struct InterfaceSetting {
  std::string text;
  std::string source;
};

std::optional<InterfaceSetting> hint_setting(const CommOptions& options, const char* key) {
  auto text = options.getHint<std::string>(key, "");
  if (text.empty() || text == "None") return std::nullopt;
  return InterfaceSetting{std::move(text), std::string("hint ") + key};
}

std::optional<InterfaceSetting> environment_setting(const char* name) {
  auto text = base::env_text(name);
  if (!text) return std::nullopt;
  return InterfaceSetting{std::move(*text), name};
}

[[noreturn]] void refuse(const InterfaceSetting& setting, const char* expected,
                         const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  throw CommError(Errc::kInvalidArgument, setting.source + "='" + setting.text + "' is not " +
                                              expected + "; interfaces here: " + interfaces_here() +
                                              ". Gloo: " + text.substr(0, text.find('\n')));
}

Devices at_hostname(const InterfaceSetting& setting, bool lazy) {
  try {
    return {Native::createDeviceForHostname(setting.text, lazy)};
  } catch (const std::system_error& e) {
    throw system_comm_error(e);
  } catch (const std::exception& e) {
    refuse(setting, "a name or address of this host that Gloo can listen on", e);
  }
}

Devices at_interfaces(const InterfaceSetting& setting, bool lazy) {
  Devices devices;
  try {
    for (size_t begin = 0; begin <= setting.text.size();) {
      const auto end = std::min(setting.text.find(',', begin), setting.text.size());
      devices.push_back(
          Native::createDeviceForInterface(setting.text.substr(begin, end - begin), lazy));
      begin = end + 1;
    }
  } catch (const std::system_error& e) {
    throw system_comm_error(e);
  } catch (const std::exception& e) {
    refuse(setting, "a network interface of this host, or a comma-separated list of interfaces", e);
  }
  return devices;
}

struct InterfaceChoice {
  InterfaceSetting setting;
  bool interfaces;  // text names interfaces; otherwise it names a host
};

// Returns: the first setting that is present, or nothing.
std::optional<InterfaceChoice> choice_of(const CommOptions& options) {
  if (const auto name = hint_setting(options, hint::kHostname.name))
    return InterfaceChoice{*name, false};
  if (const auto names = hint_setting(options, hint::kInterface.name))
    return InterfaceChoice{*names, true};
  if (const auto name = environment_setting("TORCHCOMM_GLOO_HOSTNAME"))
    return InterfaceChoice{*name, false};
  if (const auto names = environment_setting("TORCHCOMM_GLOO_INTERFACE"))
    return InterfaceChoice{*names, true};
  if (const auto names = environment_setting("GLOO_SOCKET_IFNAME"))
    return InterfaceChoice{*names, true};
  return std::nullopt;
}

// Returns: an empty list if there is no setting.
Devices make_chosen_devices(const CommOptions& options, bool lazy) {
  const auto choice = choice_of(options);
  if (!choice) return {};
  return choice->interfaces ? at_interfaces(choice->setting, lazy)
                            : at_hostname(choice->setting, lazy);
}

// The key and the values of the result that all ranks wait for. Other values: "lazy <ranks>" if
// only some ranks connect lazily, and "failed <rank> <why>".
constexpr const char* kOutcomeKey = "verdict";
constexpr const char* kNear = "near";  // all ranks share one loopback interface
constexpr const char* kFar = "far";

std::string compute_outcome(StoreKeyValue& store, int size) {
  const auto lazy = store.add("lazy", 0);
  if (lazy == 0 || lazy == size) return store.add("near", 0) == size ? kNear : kFar;
  std::string ranks;
  for (int rank = 0; rank < size; ++rank)
    if (store.has({"lazy/" + std::to_string(rank)}))
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return "lazy " + ranks;
}

// Publishes that this rank cannot connect, so that peer ranks that wait in agree() can report the
// reason.
void publish_device_failure(const Rendezvous& rendezvous, const CommError& error) {
  if (rendezvous.size == 1) return;
  try {
    StoreKeyValue store(rendezvous.store, rendezvous.deadline, {});
    store.set(kOutcomeKey, "failed " + std::to_string(rendezvous.rank) + " " + error.why());
    if (rendezvous.rank == 0) store.set("loopback", base::loopback_identity());
    finish_failed_rendezvous(store, rendezvous);
  } catch (const CommError& e) {
    base::log(base::LogLevel::kDebug,
              std::string("cannot inform the peer ranks of a failure: ") + e.what());
  }
}

// Returns: true if 127.0.0.1 is the same interface for all ranks. Each rank publishes whether it
// shares rank 0's loopback interface, and how it connects. The last rank to do so computes the
// result.
// Throws: CommError, on all ranks, if only some ranks connect lazily: Gloo would crash.
bool agree(const Rendezvous& rendezvous, bool lazy, const GlooCall& call) {
  if (rendezvous.size == 1) return true;
  StoreKeyValue store(rendezvous.store, rendezvous.deadline, {});
  if (rendezvous.rank == 0) store.set("loopback", base::loopback_identity());
  if (lazy) {
    store.set("lazy/" + std::to_string(rendezvous.rank), "yes");
    store.add("lazy", 1);
  }
  if (store.get("loopback", rendezvous.deadline.remaining()) == base::loopback_identity())
    store.add("near", 1);
  if (store.add("asked", 1) == rendezvous.size)
    store.set(kOutcomeKey, compute_outcome(store, rendezvous.size));
  const auto outcome = store.get(kOutcomeKey, rendezvous.deadline.remaining());
  if (outcome == kNear || outcome == kFar) return outcome == kNear;
  finish_failed_rendezvous(store, rendezvous);
  const auto begin = outcome.find(' ') + 1;
  if (outcome.starts_with("lazy"))
    throw CommError(
        Errc::kMismatch,
        "only ranks " + outcome.substr(begin) +
            " connect lazily (hint lazy, or TORCH_GLOO_LAZY_INIT). Set it on all ranks, "
            "or on none",
        context(call));
  const auto end = outcome.find(' ', begin);
  auto error_context = context(call, std::stoi(outcome.substr(begin, end - begin)));
  error_context.culprits = {error_context.peer};
  throw CommError(
      Errc::kPeerFailed,
      "rank " + std::to_string(error_context.peer) + " cannot connect: " + outcome.substr(end + 1),
      error_context);
}

// Returns: the host of the store, or "" if it is unknown. The route to that host selects the
// address of this rank.
std::string host_to_reach(const Rendezvous& rendezvous) {
  if (const auto master = base::env_text("MASTER_ADDR")) return *master;
  constexpr std::string_view kTcp = "tcp://";
  if (!rendezvous.address.starts_with(kTcp)) return {};
  return rendezvous.address.substr(kTcp.size(), rendezvous.address.rfind(':') - kTcp.size());
}

}  // namespace

bool is_lazy_connect(const CommOptions& options) {
  return options.hints.contains(hint::kLazy.name) || c10d::getDefaultGlooLazyInit();
}

std::string chosen_interface(const CommOptions& options) {
  const auto choice = choice_of(options);
  if (!choice || !choice->interfaces) return {};
  return choice->setting.text.substr(0, choice->setting.text.find(','));
}

Devices find_devices(const CommOptions& options, const Rendezvous& rendezvous,
                     const Devices& parent_devices, const GlooCall& call) {
  const bool lazy = is_lazy_connect(options);
  const bool side_channel =
      rendezvous.size > 1 && common::parse_monitor_options(options).is_enabled;
  Devices chosen;
  try {
    // This is first, so that a rank with an invalid setting reports its own error, whatever the
    // peers do.
    const auto peers = static_cast<size_t>(std::max(rendezvous.size - 1, 0));
    base::require_descriptors(
        kDeviceDescriptors + (side_channel ? kSideChannelDescriptors : 0) + (lazy ? 0 : peers),
        "Gloo");
    chosen = make_chosen_devices(options, lazy);
  } catch (const CommError& e) {
    publish_device_failure(rendezvous, e);
    throw;
  }
  const bool same_loopback = agree(rendezvous, lazy, call);
  if (chosen.empty()) chosen = parent_devices;
  if (!chosen.empty()) return chosen;
  const InterfaceSetting address{same_loopback ? kLoopback : own_address(host_to_reach(rendezvous)),
                                 "the address of this host"};
  try {
    return at_hostname(address, lazy);
  } catch (const CommError& e) {
    // At this point the peer ranks wait for this rank in open_monitor().
    if (side_channel) common::decline_monitor(rendezvous, call.comm->name, e);
    throw;
  }
}

}  // namespace torch::comms::gloo
