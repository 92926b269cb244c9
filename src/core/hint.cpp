#include "core/hint.hpp"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "base/log.hpp"

namespace torch::comms {
namespace {

constexpr const char* kCheckCalls = "check_calls";

// Every hint without a prefix that some backend has, and what programs for others have of them.
constexpr std::string_view kKnown[] = {"batch_invariant",
                                       "blocking",
                                       "cga_cluster_size",
                                       "cgaClusterSize",
                                       "check_calls",
                                       "collnet_enable",
                                       "collnetEnable",
                                       "comm_name",
                                       "commName",
                                       "cta_policy",
                                       "CTAPolicy",
                                       "enable_cuda_graph_support",
                                       "fastInitMode",
                                       "garbage_collect_interval_ms",
                                       "graph_timeout_check_interval_ms",
                                       "hostname",
                                       "interface",
                                       "is_high_priority_stream",
                                       "lazy",
                                       "lazySetupChannels",
                                       "max_ctas",
                                       "max_event_pool_size",
                                       "maxCTAs",
                                       "min_ctas",
                                       "minCTAs",
                                       "n_channels_per_net_peer",
                                       "nChannelsPerNetPeer",
                                       "net_name",
                                       "netName",
                                       "nvlink_centric_sched",
                                       "nvlinkCentricSched",
                                       "nvls_ctas",
                                       "nvlsCTAs",
                                       "persistent_store",
                                       "shrink_share",
                                       "shrinkShare",
                                       "side_channel",
                                       "side_channel_interface",
                                       "split_share",
                                       "splitShare",
                                       "traffic_class",
                                       "trafficClass"};
// Those that torch writes of a process group's options, and nobody reads.
constexpr std::string_view kTorchs[] = {"backend",
                                        "config",
                                        "enable_reconfigure",
                                        "global_ranks_in_group",
                                        "group_name",
                                        "lazy_init",
                                        "max_p2p_peers",
                                        "split_color",
                                        "split_from",
                                        "use_pg_for_symm_mem_rendezvous"};
constexpr size_t kMostTold = 64;

// How many letters have to be put in, left out or changed to make one text the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, diagonal + 1, changed});
    }
  }
  return row.back();
}

// What may have been meant, or what there is.
std::string instead_of(std::string_view key) {
  const auto near = std::ranges::min_element(
      kKnown, {}, [key](std::string_view known) { return distance(key, known); });
  if (distance(key, *near) <= std::max<size_t>(1, near->size() / 3))
    return "; did you mean " + std::string(*near) + "?";
  std::string known;
  for (const auto word : kKnown) known.append(known.empty() ? "" : ", ").append(word);
  return "; without a prefix there are " + known;
}

bool checks_otherwise() { return env_to_value<bool>("TORCHCOMM_CHECK_CALLS", false); }

}  // namespace

bool flag_of(const Hints& hints, const std::string& key, bool otherwise) {
  const auto found = hints.find(key);
  if (found == hints.end()) return otherwise;
  try {
    return string_to_bool(found->second);
  } catch (const CommError& error) {
    throw CommError(Errc::kInvalidArgument, "hint " + key + ": " + error.why());
  }
}

void tell_of_unknown(const Hints& hints) {
  for (const auto& [key, value] : hints) {
    if (key.empty() || key.find("::") != std::string::npos) continue;
    if (std::ranges::find(kKnown, key) != std::end(kKnown)) continue;
    if (std::ranges::find(kTorchs, key) != std::end(kTorchs)) continue;
    tell_of_unknown(key, instead_of(key));
  }
}

void tell_of_unknown(const std::string& key, const std::string& instead) {
  static std::mutex mutex;  // guards told
  static std::set<std::string> told;
  {
    const std::lock_guard lock(mutex);
    if (told.size() == kMostTold || !told.insert(key).second) return;
  }
  base::log(base::LogLevel::kWarning, "hint " + key + " is unknown and has no effect" + instead);
}

bool is_batch_invariant(const Hints& hints, bool otherwise) {
  return flag_of(hints, kBatchInvariant, otherwise);
}

bool checks_calls(const CommOptions& options) {
  return flag_of(options.hints, kCheckCalls, checks_otherwise());
}

CommOptions with_checks_of(bool parent_checks, CommOptions options) {
  if (parent_checks != checks_otherwise())
    options.hints.try_emplace(kCheckCalls, parent_checks ? "true" : "false");
  return options;
}

}  // namespace torch::comms
