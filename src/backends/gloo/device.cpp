#include "backends/gloo/device.hpp"

#include <ifaddrs.h>

#include <optional>
#include <set>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/gloo/call.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "base/env.hpp"
#include "base/host.hpp"
#include "core/hint_table.hpp"
#include "core/reach.hpp"
#include "core/rendezvous.hpp"
#include "core/store_adapter.hpp"

namespace torch::comms::gloo {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

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

// A text and where it was found.
struct Setting {
  std::string text;
  std::string source;
};

std::optional<Setting> given(const CommOptions& options, const char* key) {
  auto text = options.getHint<std::string>(key, "");
  if (text.empty() || text == "None") return std::nullopt;
  return Setting{std::move(text), std::string("hint ") + key};
}

std::optional<Setting> variable(const char* name) {
  auto text = base::env_text(name);
  if (!text) return std::nullopt;
  return Setting{std::move(*text), name};
}

[[noreturn]] void refuse(const Setting& setting, const char* expected,
                         const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  throw CommError(Errc::kInvalidArgument, setting.source + "='" + setting.text + "' is not " +
                                              expected + "; interfaces here: " + interfaces_here() +
                                              ". Gloo: " + text.substr(0, text.find('\n')));
}

Devices at_hostname(const Setting& setting, bool lazy) {
  try {
    return {Native::createDeviceForHostname(setting.text, lazy)};
  } catch (const std::exception& e) {
    refuse(setting, "a name or address of this host that Gloo can listen on", e);
  }
}

Devices at_interfaces(const Setting& setting, bool lazy) {
  Devices devices;
  try {
    for (size_t begin = 0; begin <= setting.text.size();) {
      const auto end = std::min(setting.text.find(',', begin), setting.text.size());
      devices.push_back(
          Native::createDeviceForInterface(setting.text.substr(begin, end - begin), lazy));
      begin = end + 1;
    }
  } catch (const std::exception& e) {
    refuse(setting, "a network interface of this host, or a list of them with commas", e);
  }
  return devices;
}

struct Choice {
  Setting setting;
  bool interfaces;  // names of them; else of a host
};

// What says where to listen; nothing where that is up to this backend.
std::optional<Choice> choice_of(const CommOptions& options) {
  if (const auto name = given(options, hint::kHostname.name)) return Choice{*name, false};
  if (const auto names = given(options, hint::kInterface.name)) return Choice{*names, true};
  if (const auto name = variable("TORCHCOMM_GLOO_HOSTNAME")) return Choice{*name, false};
  if (const auto names = variable("TORCHCOMM_GLOO_INTERFACE")) return Choice{*names, true};
  if (const auto names = variable("GLOO_SOCKET_IFNAME")) return Choice{*names, true};
  return std::nullopt;
}

// Whether 127.0.0.1 is the same to all ranks. Each rank says whether it shares rank 0's; the last
// one sums up.
bool all_share_loopback(const Rendezvous& met) {
  if (met.size == 1) return true;
  StoreKeyValue store(met.store, met.deadline, {});
  if (met.rank == 0) store.set("loopback", base::loopback_identity());
  if (store.get("loopback", met.deadline.left()) == base::loopback_identity()) store.add("near", 1);
  if (store.add("asked", 1) == met.size)
    store.set("verdict", store.add("near", 0) == met.size ? "near" : "far");
  return store.get("verdict", met.deadline.left()) == "near";
}

// The host of the master, as far as it is known: it decides which of our addresses the others can
// reach.
std::string host_to_reach(const Rendezvous& met) {
  if (const auto master = base::env_text("MASTER_ADDR")) return *master;
  constexpr std::string_view kTcp = "tcp://";
  if (!met.address.starts_with(kTcp)) return {};
  return met.address.substr(kTcp.size(), met.address.rfind(':') - kTcp.size());
}

}  // namespace

bool connects_lazily(const CommOptions& options) {
  return options.hints.contains(hint::kLazy.name) || c10d::getDefaultGlooLazyInit();
}

Devices devices_of_choice(const CommOptions& options) {
  const auto choice = choice_of(options);
  if (!choice) return {};
  const bool lazy = connects_lazily(options);
  return choice->interfaces ? at_interfaces(choice->setting, lazy)
                            : at_hostname(choice->setting, lazy);
}

std::string interface_of_choice(const CommOptions& options) {
  const auto choice = choice_of(options);
  if (!choice || !choice->interfaces) return {};
  return choice->setting.text.substr(0, choice->setting.text.find(','));
}

Devices find_devices(const CommOptions& options, const Rendezvous& met) {
  // First, so that a rank whose choice is impossible says so itself, whatever the others do.
  auto chosen = devices_of_choice(options);
  const bool near = all_share_loopback(met);
  if (!chosen.empty()) return chosen;
  const Setting address{near ? kLoopback : own_address(host_to_reach(met)),
                        "the address of this host"};
  return at_hostname(address, connects_lazily(options));
}

}  // namespace torch::comms::gloo
