#include "backends/nccl/hints.hpp"

#include <charconv>

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {
namespace {

constexpr const char* kWatchReplays = "TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING";
constexpr const char* kUseCurrentStream = "nccl::use_current_stream";

struct Number {
  const char *name, *other_name;
  int abi::Config::* field;
};
constexpr Number kNumbers[] = {
    {"blocking", "blocking", &abi::Config::blocking},
    {"cgaClusterSize", "cga_cluster_size", &abi::Config::cga_cluster_size},
    {"minCTAs", "min_ctas", &abi::Config::min_ctas},
    {"maxCTAs", "max_ctas", &abi::Config::max_ctas},
    {"splitShare", "split_share", &abi::Config::split_share},
    {"trafficClass", "traffic_class", &abi::Config::traffic_class},
    {"collnetEnable", "collnet_enable", &abi::Config::collnet_enable},
    {"CTAPolicy", "cta_policy", &abi::Config::cta_policy},
    {"shrinkShare", "shrink_share", &abi::Config::shrink_share},
    {"nvlsCTAs", "nvls_ctas", &abi::Config::nvls_ctas},
    {"nChannelsPerNetPeer", "n_channels_per_net_peer", &abi::Config::channels_per_net_peer},
    {"nvlinkCentricSched", "nvlink_centric_sched", &abi::Config::nvlink_centric_sched},
};
struct Text {
  const char *name, *other_name;
  const char* abi::Config::* field;
};
constexpr Text kTexts[] = {
    {"netName", "net_name", &abi::Config::net_name},
    {"commName", "comm_name", &abi::Config::comm_name},
};

const std::string* find(const Hints& hints, const char* name, const char* other_name) {
  for (const auto* key : {name, other_name})
    if (const auto found = hints.find(key);
        found != hints.end() && !found->second.empty() && found->second != "None")
      return &found->second;
  return nullptr;
}

int number(const char* name, const std::string& text) {
  int value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc{} || stop != end || text.empty())
    throw CommError(Errc::kInvalidArgument, "hint " + std::string(name) + "='" + text +
                                                "' is not allowed: expected a whole number");
  return value;
}

}  // namespace

Wishes wishes_of(const CommOptions& options) {
  Wishes wishes;
  wishes.high_priority_stream = options.getHint<bool>(
      "is_high_priority_stream", options.is_high_priority_stream.value_or(false));
  wishes.most_events = options.getHint<size_t>("max_event_pool_size", wishes.most_events);
  wishes.watch_replays = env_to_value<bool>(kWatchReplays, true) &&
                         options.getHint<bool>("enable_cuda_graph_support", wishes.watch_replays);
  wishes.replays_period = std::chrono::milliseconds(options.getHint<size_t>(
      "graph_timeout_check_interval_ms", static_cast<size_t>(wishes.replays_period.count())));
  wishes.beside = beside::wishes_of(options);
  wishes.on_current_stream = wants_current_stream(options.hints, false);
  return wishes;
}

bool wants_current_stream(const Hints& hints, bool fallback) {
  if (hints.empty()) return fallback;
  const auto* text = find(hints, kUseCurrentStream, kUseCurrentStream);
  return text == nullptr ? fallback : string_to_bool(*text);
}

abi::Config config_of(const Hints& hints, const std::string& name) {
  abi::Config config;
  // Else each operation has a thread of its own in the library, which takes 100 us.
  config.blocking = 1;
  if (!name.empty()) config.comm_name = name.c_str();
  for (const auto& row : kNumbers)
    if (const auto* text = find(hints, row.name, row.other_name))
      config.*row.field = number(row.name, *text);
  for (const auto& row : kTexts)
    if (const auto* text = find(hints, row.name, row.other_name)) config.*row.field = text->c_str();
  return config;
}

}  // namespace torch::comms::nccl
