#include "bootstrap/master_address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <torchcomms/base/error.hpp>

#include "bootstrap/hostlist.hpp"

namespace torch::comms::bootstrap {
namespace {

constexpr uint32_t kFirstPort = 20'000;
constexpr uint32_t kPorts = 10'000;

constexpr const char* kWhatToSet =
    "Set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, the same on all "
    "ranks "
    "(torchrun does that), or pass store=";

struct InferredHost {
  std::string name, source;
};

std::optional<InferredHost> slurm_host(const EnvLookup& lookup) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const auto text = lookup(name);
    if (!text) continue;
    const auto hosts = expand_hostlist(*text);
    if (hosts.size() == 1)
      return InferredHost{"127.0.0.1", std::string("the only host of ") + name};
    return InferredHost{hosts.front(), std::string("the first host of ") + name};
  }
  return std::nullopt;
}

// Parses a PMIX_NAMESPACE of Open MPI 5: "prterun-<host>-<pid>@<n>".
std::optional<std::string> prterun_host(const std::string& name_space) {
  constexpr std::string_view kHead = "prterun-";
  if (!name_space.starts_with(kHead)) return std::nullopt;
  const auto end = name_space.rfind('-', name_space.rfind('@'));
  if (end == std::string::npos || end <= kHead.size()) return std::nullopt;
  return name_space.substr(kHead.size(), end - kHead.size());
}

// Parses an OMPI_MCA_orte_hnp_uri of Open MPI 4: "<job>.<n>;tcp://<address>[,<address>...]:<port>".
std::optional<std::string> orterun_host(const std::string& uri) {
  constexpr std::string_view kTcp = "tcp://";
  const auto begin = uri.find(kTcp);
  if (begin == std::string::npos) return std::nullopt;
  const auto host = uri.substr(begin + kTcp.size());
  const auto end = host.find_first_of(",:");
  if (end == 0 || end == std::string::npos) return std::nullopt;
  return host.substr(0, end);
}

std::optional<InferredHost> open_mpi_host(const EnvLookup& lookup) {
  if (const auto uri = lookup("OMPI_MCA_orte_hnp_uri"))
    if (const auto host = orterun_host(*uri)) return InferredHost{*host, "OMPI_MCA_orte_hnp_uri"};
  if (const auto space = lookup("PMIX_NAMESPACE"))
    if (const auto host = prterun_host(*space)) return InferredHost{*host, "PMIX_NAMESPACE"};
  return std::nullopt;
}

std::optional<InferredHost> job_host(const EnvLookup& lookup, const LaunchInfo& launch) {
  if (launch.local_size == launch.size)
    return InferredHost{"127.0.0.1", "all ranks being on one host"};
  // Slurm's PMI2 plugin sets the variables of PMI.
  if (launch.source == "Slurm" || (launch.source == "PMI" && lookup("SLURM_STEP_ID")))
    return slurm_host(lookup);
  if (launch.source == "Open MPI") return open_mpi_host(lookup);
  return std::nullopt;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_host_letter(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

// An IPv6 address may have a zone: "fe80::1%eth0".
bool is_ipv6(const std::string& text) {
  in6_addr address;
  const auto zone = text.find('%');
  if (zone != std::string::npos && zone + 1 == text.size()) return false;
  return ::inet_pton(AF_INET6, text.substr(0, zone).c_str(), &address) == 1;
}

// Accepts labels of letters, digits, '-' and '_', separated by dots; a trailing dot is allowed.
bool is_host_name(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  size_t label = 0;  // length of the current label
  for (const char c : text) {
    if (c == '.' ? label == 0 : !is_host_letter(c)) return false;
    label = c == '.' ? 0 : label + 1;
  }
  return label > 0;
}

bool is_host(const std::string& text) {
  const bool is_number =
      std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; });
  in_addr address;
  if (is_number) return ::inet_aton(text.c_str(), &address) == 1;
  return is_host_name(text) || is_ipv6(text);
}

std::string parse_address(std::string text) {
  if (!is_host(text))
    throw CommError(
        Errc::kInvalidArgument,
        "environment variable MASTER_ADDR='" + text +
            "' is not allowed: expected a host name, an IPv4 address, or an IPv6 "
            "address without brackets; without scheme, and with the port in MASTER_PORT");
  return text;
}

uint16_t parse_port(const std::string& text) {
  uint16_t port = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc{} || stop != text.data() + text.size() || port == 0)
    throw CommError(Errc::kInvalidArgument, "environment variable MASTER_PORT='" + text +
                                                "' is not allowed: expected 1 to 65535");
  return port;
}

// FNV-1a: equal on every rank, whatever the compiler and the process.
uint32_t hash(const std::string& text) {
  uint32_t h = 2'166'136'261u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16'777'619u;
  return h;
}

}  // namespace

MasterAddress find_master_address(const EnvLookup& lookup, const LaunchInfo& launch) {
  MasterAddress master;
  if (const auto address = lookup("MASTER_ADDR")) {
    master.host = parse_address(*address);
    master.source = "MASTER_ADDR";
  } else if (const auto host = job_host(lookup, launch)) {
    master.host = host->name;
    master.source = host->source;
    master.is_inferred = true;
  } else {
    throw CommError(Errc::kInvalidArgument, "no store was passed, MASTER_ADDR is unset, and " +
                                                describe(launch) +
                                                " does not tell rank 0's host. " + kWhatToSet);
  }
  if (const auto port = lookup("MASTER_PORT")) {
    master.port = parse_port(*port);
  } else if (!launch.job.empty()) {
    master.port = static_cast<uint16_t>(kFirstPort + hash(launch.job) % kPorts);
  } else {
    throw CommError(Errc::kInvalidArgument,
                    "no store was passed, MASTER_PORT is unset, and " + describe(launch) +
                        " gives no job id to derive a port from. " + kWhatToSet);
  }
  return master;
}

}  // namespace torch::comms::bootstrap
