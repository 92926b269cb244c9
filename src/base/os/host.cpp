#include "base/os/host.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <fstream>
#include <memory>

namespace torch::comms::base {
namespace {

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string format_address(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  return text;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    auto text = format_address(i->ifa_addr);
    if (text.empty()) continue;
    if (is_link_local(i->ifa_addr)) text += std::string("%") + i->ifa_name;
    found.push_back(
        {i->ifa_name, text, (i->ifa_flags & IFF_LOOPBACK) != 0, (i->ifa_flags & IFF_UP) != 0});
  }
  return found;
}

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

std::string boot_identity() { return read_line("/proc/sys/kernel/random/boot_id"); }

std::string loopback_identity() {
  char space[64] = "";
  const auto size = ::readlink("/proc/self/ns/net", space, sizeof space - 1);
  const auto boot = boot_identity();
  // The first network namespace has the same number on all hosts.
  return (boot.empty() ? host_name() : boot) + "/" +
         (size > 0 ? std::string(space, static_cast<size_t>(size)) : host_name());
}

}  // namespace torch::comms::base
