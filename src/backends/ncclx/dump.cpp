#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>

#include "backends/device_kernels/team_kernels.hpp"
#include "backends/ncclx/ncclx_backend.hpp"

// TorchCommNCCLX: comm_dump() and comm_dump_all().
namespace torch::comms {
namespace {

constexpr const char* kFields = "comm_dump::requestFields";
constexpr std::string_view kGlobal = "GlobalInfo";

// All connected communicators. Never destroyed, because communicators may outlive static
// destruction.
struct ConnectedComms {
  std::mutex mutex;  // guards all
  std::set<const TorchCommNCCLX*> all;
};
ConnectedComms& connected_comms() {
  static auto* const registry = new ConnectedComms;
  return *registry;
}

// Returns: the FNV-1a hash of `text`, equal on all ranks for equal texts.
std::string hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char character : text)
    hash = (hash ^ static_cast<unsigned char>(character)) * 1099511628211u;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// Selects fields by a list separated by ';'. An empty list selects all.
class Filter {
 public:
  explicit Filter(const Hints& hints) {
    const auto found = hints.find(kFields);
    std::istringstream in(found == hints.end() ? "" : found->second);
    for (std::string field; std::getline(in, field, ';');)
      if (!field.empty()) wanted_.insert(field);
  }
  TorchCommNCCLX::Dump of(const TorchCommNCCLX::Dump& dump, const std::string& prefix = "") const {
    if (wanted_.empty()) return dump;
    TorchCommNCCLX::Dump chosen;
    for (const auto& field : dump)
      if (wanted_.contains(prefix + field.first)) chosen.insert(field);
    return chosen;
  }

 private:
  std::set<std::string> wanted_;
};

}  // namespace

void TorchCommNCCLX::set_dump_visible(bool visible) const {
  const std::lock_guard lock(connected_comms().mutex);
  if (visible)
    connected_comms().all.insert(this);
  else
    connected_comms().all.erase(this);
}

TorchCommNCCLX::Dump TorchCommNCCLX::comm_dump() const {
  const std::string name(getCommName());
  const auto ranks = list_of(getRanks());
  Dump dump{{"commHash", hash_of(name + "/" + ranks)},
            {"commName", name},
            {"rank", std::to_string(getRank())},
            {"nRanks", std::to_string(getSize())},
            {"globalRanks", ranks},
            {"device", getDevice().str()},
            {"ncclVersion", std::string(getBackendVersion())},
            {"aborted", isAborted() ? "true" : "false"}};
  if (const auto* const own = kernels()) {
    const auto& team = own->team();
    dump["kernels"] = team.architectures();
    dump["kernelsLibrary"] = team.library_path();
    dump["kernelLaunches"] = std::to_string(own->launches());
    dump["workspaceBytes"] = std::to_string(team.workspace_bytes());
  } else {
    dump["kernels"] = "none: " + kernels_unavailable_reason_;
  }
  return dump;
}

std::map<std::string, TorchCommNCCLX::Dump> TorchCommNCCLX::comm_dump_all(const Hints& hints) {
  const Filter filter(hints);
  std::map<std::string, Dump> all;
  const std::lock_guard lock(connected_comms().mutex);
  size_t count = 0;
  for (const auto* comm : connected_comms().all) {
    ++count;
    const auto dump = comm->comm_dump();
    all[dump.at("commHash")] = filter.of(dump);
  }
  all[std::string(kGlobal)] =
      filter.of({{"communicators", std::to_string(count)}}, std::string(kGlobal) + "::");
  return all;
}

}  // namespace torch::comms
