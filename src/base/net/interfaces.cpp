#include "base/net/interfaces.hpp"

#include <torchcomms/base/error.hpp>

namespace torch::comms::base {
namespace {

constexpr size_t kMaxAddresses = 8;

bool is_v6(const InterfaceAddress& a) { return a.address.find(':') != std::string::npos; }
bool is_link_local(const InterfaceAddress& a) {
  return a.address.starts_with("fe80:") || a.address.starts_with("169.254.");
}
// Bridges of container runtimes have an address that exists on every host.
bool is_bridge(const InterfaceAddress& a) {
  return a.interface.starts_with("docker") || a.interface.starts_with("virbr") ||
         a.interface.starts_with("cni") || a.interface.starts_with("br-");
}

bool is_usable(const InterfaceAddress& a) {
  return a.is_up && !a.is_loopback && !is_bridge(a) && !is_link_local(a);
}

std::string listed(const std::vector<InterfaceAddress>& all) {
  std::string text;
  for (const auto& a : all) text += (text.empty() ? "" : ", ") + a.interface + " " + a.address;
  return text.empty() ? "none" : text;
}

}  // namespace

AddressChoice choose_addresses(const std::vector<InterfaceAddress>& all, std::string_view wanted) {
  AddressChoice choice;
  const auto add = [&choice](const InterfaceAddress& a) {
    if (choice.addresses.size() < kMaxAddresses) choice.addresses.push_back(a.address);
  };
  if (!wanted.empty()) {
    for (const auto& a : all)
      if (a.interface == wanted || a.address == wanted) add(a);
    if (choice.addresses.empty())
      throw CommError(Errc::kInvalidArgument, "no interface or address '" + std::string(wanted) +
                                                  "' on this host; available: " + listed(all));
    choice.reason = "'" + std::string(wanted) + "' was requested";
    return choice;
  }
  for (const bool v6 : {false, true}) {
    for (const auto& a : all) {
      if (!is_usable(a) || is_v6(a) != v6) continue;
      if (choice.addresses.empty())
        choice.reason = a.interface + ": up, and neither loopback nor a bridge";
      add(a);
    }
  }
  if (!choice.addresses.empty()) return choice;
  for (const auto& a : all)
    if (a.is_loopback) add(a);
  if (choice.addresses.empty()) choice.addresses.push_back("127.0.0.1");
  choice.reason = "loopback: no other interface is up, so only ranks of this host can connect";
  return choice;
}

}  // namespace torch::comms::base
