#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/text/utf8.hpp"
#include "gpu/driver.hpp"
#include "gpu/imported_memory.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::transport::nvl {

// Gathers a text of at most kMaxTextBytes bytes from every rank to every rank, by rank; the ranks
// of a group agree through it. Collective.
// Throws: what the implementation throws.
inline constexpr size_t kMaxTextBytes = 512;
using AllGatherStrings = std::function<std::vector<std::string>(const std::string& text)>;

// Returns: the text of the CommError that `body` throws, to be sent to the peers; "" if it throws
// none.
template <class Body>
std::string error_text_of(const Body& body) {
  try {
    body();
    return {};
  } catch (const CommError& e) {
    return std::string(base::utf8_prefix(e.why(), kMaxTextBytes));
  }
}

// One rank of a group and its device.
struct RankContext {
  int rank, size;
  int device;
  std::shared_ptr<const gpu::Runtime> runtime;
  // nullptr without a driver; then MemoryRequest::unavailable_reason is set.
  std::shared_ptr<const gpu::Driver> driver;
};

// The memory that this rank asks all ranks of the group to provide.
struct MemoryRequest {
  // Must be equal on all ranks; otherwise no memory is made.
  size_t size_bytes;
  // For example "kernels abi 1"; must be equal on all ranks.
  std::string purpose;
  // Why this rank cannot provide memory; "" if it can.
  std::string unavailable_reason;
  // The part that this rank needs at first, in bytes; 0: all of it.
  size_t initial_bytes = 0;
};

// Exchanges handles of device memory between the ranks of one host, so that each maps the memory of
// all. The ranks are processes or threads. Their devices reach each other, and several ranks may
// use the same device.
//
// Collective.
// Blocks: in the all-gather, and up to 10 s until the packets that peers have sent are read.
struct HandleExchange {
  // Makes this rank's memory. Called once every rank is able to provide memory and reaches the
  // peers' devices. `first_bytes`: the least that any rank needs at first.
  std::function<gpu::ExportedMemory(size_t first_bytes)> export_memory;
  // Maps the memory of a peer rank.
  std::function<void(int rank, const gpu::ExportedMemory&)> import_memory;

  // Runs the exchange.
  // Returns: "" if every rank has mapped the memory of all; else why not. The text is the same on
  // all ranks and names the first rank that failed.
  std::string run(const RankContext& context, const MemoryRequest& request,
                  const AllGatherStrings& all_gather) const;
};

}  // namespace torch::comms::transport::nvl
