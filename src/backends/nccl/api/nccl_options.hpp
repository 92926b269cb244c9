#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torchcomms/options.hpp>

#include "backends/common/peer_monitor.hpp"
#include "vendor/vendor_library.hpp"

// The hints that the backends over vendors' libraries read. Throws CommError(kInvalidArgument),
// without context, naming hint, value and what is allowed.
namespace torch::comms::nccl {

struct NcclOptions {
  bool high_priority_stream = false;  // `is_high_priority_stream`, else the option of that name
  size_t max_events = 1000;           // `max_event_pool_size`
  bool use_current_stream = false;    // `nccl::use_current_stream`
  bool monitor_replays = true;        // `enable_cuda_graph_support`
  std::chrono::milliseconds replay_poll_interval{1000};  // `graph_timeout_check_interval_ms`
  common::MonitorOptions monitor = {};
};
NcclOptions parse_nccl_options(const CommOptions& options);
// Of one call; the second is nothing where its hint is not set, of which ncclx has an older
// spelling.
bool parse_use_current_stream(const Hints& hints, bool fallback);
std::optional<bool> parse_high_priority(const Hints& hints, bool knows_older);

// The library's configuration with what the hints say; where they name no communicator it is called
// `name`, unless that is empty. It refers to the text in both.
abi::Config make_config(const Hints& hints, const std::string& name = {});
// Throws CommError(kUnsupported), without context, where hints are for fields that came with later
// versions than this library's, which would leave them unread.
void require_supported_hints(const VendorLibrary& library, const Hints& hints);

}  // namespace torch::comms::nccl
