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

// What one rank publishes so that its peers can connect to it; plain data.
struct Endpoint {
  std::string link;  // "shm", "tcp", "self"
  int rank = -1;
  // Random number of this transport object, so that a connection for an old object never reaches a
  // new one.
  uint64_t instance = 0;
  std::string host;                    // equal for two ranks exactly if they can share memory
  std::vector<std::string> addresses;  // in the transport's own format, the best one first

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

inline constexpr size_t kMaxEndpointBytes = 2048;

// Serializes an endpoint as at most kMaxEndpointBytes binary bytes, marked with the job's secret.
// Throws: CommError(kTooLarge).
TC_API std::string serialize(const Endpoint& endpoint, const Secret& job);
// Parses a serialized endpoint; `text` may be anything. Allocates nothing larger than
// kMaxEndpointBytes.
// Throws: CommError(kMismatch) that names what is wrong: not an endpoint, another version, another
// job, or truncated. CommError(kTooLarge) for a longer text.
TC_API Endpoint parse_endpoint(std::string_view text, const Secret& job);

// Returns: a text of this process's kernel boot, network namespace and PID namespace.
TC_API std::string host_identity();

}  // namespace torch::comms::transport
