#include "base/net/proc_net_tcp.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

namespace torch::comms::base {
namespace {

std::string_view next_field(std::string_view& line) {
  const auto begin = std::min(line.find_first_not_of(' '), line.size());
  line.remove_prefix(begin);
  const auto field = line.substr(0, line.find(' '));
  line.remove_prefix(field.size());
  return field;
}

template <class Number>
std::optional<Number> number(std::string_view field, int base) {
  Number value = 0;
  const auto [stop, code] = std::from_chars(field.begin(), field.end(), value, base);
  if (code != std::errc{} || stop != field.end() || field.empty()) return std::nullopt;
  return value;
}

// Parses the port of an endpoint such as "0100007F:1F90".
std::optional<uint16_t> port_of(std::string_view endpoint) {
  const auto colon = endpoint.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  return number<uint16_t>(endpoint.substr(colon + 1), 16);
}

std::optional<ProcNetTcpEntry> parse_line(std::string_view line) {
  constexpr std::string_view kEstablished = "01";
  next_field(line);  // skip the line number
  const auto local = port_of(next_field(line)), remote = port_of(next_field(line));
  const bool established = next_field(line) == kEstablished;
  for (int i = 0; i < 5; ++i)
    next_field(line);  // skip the queues, timer, retransmissions, user and probes
  const auto inode = number<uint64_t>(next_field(line), 10);
  if (!established || !local || !remote || !inode) return std::nullopt;
  return ProcNetTcpEntry{*local, *remote, *inode};
}

std::set<uint64_t> own_sockets() {
  constexpr std::string_view kSocket = "socket:[";
  std::set<uint64_t> inodes;
  std::error_code failed;
  for (std::filesystem::directory_iterator next("/proc/self/fd", failed), end;
       !failed && next != end; next.increment(failed)) {
    std::error_code closed;  // the descriptor may have been closed meanwhile
    const auto target = std::filesystem::read_symlink(next->path(), closed).string();
    if (!target.starts_with(kSocket)) continue;
    const auto digits = std::string_view(target).substr(kSocket.size());
    if (const auto inode = number<uint64_t>(digits.substr(0, digits.size() - 1), 10))
      inodes.insert(*inode);
  }
  return inodes;
}

}  // namespace

std::vector<ProcNetTcpEntry> parse_proc_net_tcp(std::string_view text) {
  std::vector<ProcNetTcpEntry> found;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const auto connection = parse_line(line)) found.push_back(*connection);
  }
  return found;
}

int count_remote_peers(const std::vector<ProcNetTcpEntry>& all, uint16_t port,
                       const std::set<uint64_t>& own) {
  std::set<uint16_t> own_ports;
  for (const auto& one : all)
    if (one.remote_port == port && own.contains(one.inode)) own_ports.insert(one.local_port);
  int peer_count = 0;
  for (const auto& one : all)
    if (one.local_port == port && !own_ports.contains(one.remote_port)) ++peer_count;
  return peer_count;
}

int count_remote_connections(uint16_t port) {
  std::vector<ProcNetTcpEntry> all;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto found = parse_proc_net_tcp(text);
    all.insert(all.end(), found.begin(), found.end());
  }
  return count_remote_peers(all, port, own_sockets());
}

}  // namespace torch::comms::base
