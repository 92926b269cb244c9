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

// Every rank's words, of at most kMaxTextBytes bytes, to every rank, by rank: how the ranks of a
// group agree. Collective; what it throws passes through.
inline constexpr size_t kMaxTextBytes = 512;
using AllGatherStrings = std::function<std::vector<std::string>(const std::string& words)>;

// What `body` throws, as words for the others; "" where it throws nothing.
template <class Body>
std::string error_text_of(const Body& body) {
  try {
    body();
    return {};
  } catch (const CommError& e) {
    return std::string(base::utf8_prefix(e.why(), kMaxTextBytes));
  }
}

// One rank, and its device.
struct RankContext {
  int rank, size;
  int device;
  std::shared_ptr<const gpu::Runtime> runtime;
  std::shared_ptr<const gpu::Driver> driver;  // null where there is none; then `unwilling` says why
};

// What this rank wants of the others.
struct MemoryRequest {
  size_t size_bytes;               // equal on all ranks, or there is none
  std::string purpose;             // the same: "kernels abi 1"
  std::string unavailable_reason;  // why this rank can have none; "" where it can
  size_t initial_bytes = 0;        // of them: more is not needed at once; 0: all of them are
};

// The ranks of one host give each other memory of their devices to map. They are processes, or
// threads; their devices reach each other, and may be the same one.
//
// Collective; waits for others only in `exchange`.
struct HandleExchange {
  // This rank's memory. Of all ranks once each is willing, and reaches the others. `first_bytes`:
  // the least that any of them needs at once.
  std::function<gpu::ExportedMemory(size_t first_bytes)> export_memory;
  // That of another rank.
  std::function<void(int rank, const gpu::ExportedMemory&)> import_memory;

  // Why there is none: the same text on all ranks, naming the first rank that cannot; "" where all
  // have taken what all have brought.
  std::string run(const RankContext& seat, const MemoryRequest& wanted,
                  const AllGatherStrings& exchange) const;
};

}  // namespace torch::comms::transport::nvl
