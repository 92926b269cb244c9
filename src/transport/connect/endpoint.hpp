#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/secret.hpp"

namespace torch::comms::transport {

using base::constant_time_equal;
using base::random_number;
using base::random_secret;
using base::Secret;

// What one rank publishes so that others can reach it: plain data.
struct Endpoint {
  std::string link;  // "shm", "tcp", "self"
  int rank = -1;
  uint64_t instance = 0;  // of this transport object: an old connection never meets a new object
  std::string host;       // equal for two ranks exactly if they can share memory
  std::vector<std::string> addresses;  // as the link reads them, the best one first

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

inline constexpr size_t kMaxEndpointBytes = 2048;

// Binary, at most kMaxEndpointBytes, marked with the job. Throws CommError(kTooLarge).
TC_API std::string serialize(const Endpoint& endpoint, const Secret& job);
// Any text: throws CommError(kSizeMismatch) naming what is wrong (no endpoint at all, another
// version, another job, cut short), kTooLarge over the cap. Allocates nothing above the cap.
TC_API Endpoint parse_endpoint(std::string_view text, const Secret& job);

// Kernel boot, network and process namespace of this process.
TC_API std::string host_identity();

}  // namespace torch::comms::transport
