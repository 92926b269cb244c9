#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torchcomms/options.hpp>

#include "backends/common/peer_monitor.hpp"
#include "vendor/vendor_library.hpp"

// The hints that the backends over vendor libraries read. The functions throw
// CommError(kInvalidArgument) without context; its text names the hint, the value and what is
// allowed.
namespace torch::comms::nccl {

struct NcclOptions {
  bool high_priority_stream =
      false;                        // hint `is_high_priority_stream`, else the option of that name
  size_t max_events = 1000;         // hint `max_event_pool_size`
  bool use_current_stream = false;  // hint `nccl::use_current_stream`
  bool monitor_replays = true;      // hint `enable_cuda_graph_support`
  std::chrono::milliseconds replay_poll_interval{1000};  // hint `graph_timeout_check_interval_ms`
  common::MonitorOptions monitor = {};
};
NcclOptions parse_nccl_options(const CommOptions& options);
// The hints of one call. parse_high_priority() returns nothing if its hint is not set; with
// `knows_older` it also reads the older spelling, which ncclx accepts.
bool parse_use_current_stream(const Hints& hints, bool fallback);
std::optional<bool> parse_high_priority(const Hints& hints, bool knows_older);

// Returns: the library's configuration from the hints. `name` is the communicator's name, unless a
// hint gives one or `name` is empty.
// Lifetime: the result refers to text in both arguments.
abi::Config make_config(const Hints& hints, const std::string& name = {});
// Throws: CommError(kUnsupported) without context, if a hint needs a configuration field that is
// newer than this library, which would ignore it.
void require_supported_hints(const VendorLibrary& library, const Hints& hints);

}  // namespace torch::comms::nccl
