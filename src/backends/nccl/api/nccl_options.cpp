#include "backends/nccl/api/nccl_options.hpp"

#include <charconv>

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "core/options/hint_table.hpp"

namespace torch::comms::nccl {
namespace {

constexpr const char* kWatchReplays = "TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING";

// A hint that sets a number in the configuration. `since`: the NCCL version that added the field.
struct NumberHintRow {
  hint::Hint names;
  int abi::Config::* field;
  int since;
};
constexpr NumberHintRow kNumberHints[] = {
    {hint::kBlocking, &abi::Config::blocking, 21400},
    {hint::kCgaClusterSize, &abi::Config::cga_cluster_size, 21700},
    {hint::kMinCtas, &abi::Config::min_ctas, 21700},
    {hint::kMaxCtas, &abi::Config::max_ctas, 21700},
    {hint::kSplitShare, &abi::Config::split_share, 21800},
    {hint::kTrafficClass, &abi::Config::traffic_class, 22600},
    {hint::kCollnetEnable, &abi::Config::collnet_enable, 22700},
    {hint::kCtaPolicy, &abi::Config::cta_policy, 22700},
    {hint::kShrinkShare, &abi::Config::shrink_share, 22700},
    {hint::kNvlsCtas, &abi::Config::nvls_ctas, 22700},
    {hint::kChannelsPerNetPeer, &abi::Config::channels_per_net_peer, 22800},
    {hint::kNvlinkCentricSched, &abi::Config::nvlink_centric_sched, 22800},
};
struct TextHintRow {
  hint::Hint names;
  const char* abi::Config::* field;
  int since;
};
constexpr TextHintRow kTextHints[] = {
    {hint::kNetName, &abi::Config::net_name, 21700},
    {hint::kCommName, &abi::Config::comm_name, 22703},
};

// Returns: the hint's value in either spelling; null if it is not set.
const std::string* find(const Hints& hints, const hint::Hint& names) {
  for (const auto* key : {names.name, names.alias})
    if (const auto found = hints.find(key);
        found != hints.end() && *key != '\0' && !found->second.empty() && found->second != "None")
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

bool flag(const hint::Hint& names, const std::string& text) {
  try {
    return string_to_bool(text);
  } catch (const CommError& e) {
    throw CommError(e.code(), std::string("hint ") + names.name + ": " + e.why());
  }
}

}  // namespace

NcclOptions parse_nccl_options(const CommOptions& options) {
  NcclOptions parsed;
  parsed.high_priority_stream = options.getHint<bool>(
      hint::kHighPriorityStream.name, options.is_high_priority_stream.value_or(false));
  parsed.max_events = options.getHint<size_t>(hint::kMaxEventPoolSize.name, parsed.max_events);
  parsed.monitor_replays =
      env_to_value<bool>(kWatchReplays, true) &&
      options.getHint<bool>(hint::kEnableCudaGraphSupport.name, parsed.monitor_replays);
  parsed.replay_poll_interval = std::chrono::milliseconds(
      options.getHint<size_t>(hint::kGraphTimeoutCheckIntervalMs.name,
                              static_cast<size_t>(parsed.replay_poll_interval.count())));
  parsed.monitor = common::parse_monitor_options(options);
  parsed.use_current_stream = parse_use_current_stream(options.hints, false);
  return parsed;
}

bool parse_use_current_stream(const Hints& hints, bool fallback) {
  if (hints.empty()) return fallback;
  const auto* text = find(hints, hint::kUseCurrentStream);
  return text == nullptr ? fallback : flag(hint::kUseCurrentStream, *text);
}

std::optional<bool> parse_high_priority(const Hints& hints, bool knows_older) {
  if (hints.empty()) return std::nullopt;
  if (const auto* text = find(hints, hint::kHighPriorityStream))
    return flag(hint::kHighPriorityStream, *text);
  if (const auto* text = knows_older ? find(hints, hint::kOlderHighPriorityStream) : nullptr)
    return flag(hint::kOlderHighPriorityStream, *text);
  return std::nullopt;
}

abi::Config make_config(const Hints& hints, const std::string& name) {
  abi::Config config;
  // In nonblocking mode the library runs each operation on a thread of its own, which takes 100 us.
  config.blocking = 1;
  if (!name.empty()) config.comm_name = name.c_str();
  for (const auto& row : kNumberHints)
    if (const auto* text = find(hints, row.names))
      config.*row.field = number(row.names.name, *text);
  for (const auto& row : kTextHints)
    if (const auto* text = find(hints, row.names)) config.*row.field = text->c_str();
  return config;
}

void require_supported_hints(const VendorLibrary& library, const Hints& hints) {
  // A library of torchcomms itself (vendor `lookup`) has all fields, and reads none.
  if (!library.vendor().has_config || library.vendor().lookup != nullptr) return;
  const auto require = [&](const hint::Hint& names, int since) {
    library.require_version((std::string("hint ") + names.name).c_str(), since);
  };
  for (const auto& row : kNumberHints)
    if (const auto* text = find(hints, row.names);
        text != nullptr && number(row.names.name, *text) != abi::kUndefined)
      require(row.names, row.since);
  for (const auto& row : kTextHints)
    if (find(hints, row.names) != nullptr) require(row.names, row.since);
}

}  // namespace torch::comms::nccl
