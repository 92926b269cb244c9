#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/utf8.hpp"
#include "gpu/driver.hpp"
#include "gpu/imported_memory.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::transport::nvl {

// Every rank's words, of at most kMaxWords bytes, to every rank, by rank: how the ranks of a group
// agree. Collective; what it throws passes through.
inline constexpr size_t kMaxWords = 512;
using Exchange = std::function<std::vector<std::string>(const std::string& words)>;

// What `body` throws, as words for the others; "" where it throws nothing.
template <class Body>
std::string reason_of(const Body& body) {
  try {
    body();
    return {};
  } catch (const CommError& e) {
    return std::string(base::utf8_prefix(e.why(), kMaxWords));
  }
}

// One rank, and its device.
struct Seat {
  int rank, size;
  int device;
  std::shared_ptr<const gpu::Runtime> runtime;
  std::shared_ptr<const gpu::Driver> driver;  // null where there is none; then `unwilling` says why
};

// What this rank wants of the others.
struct Wanted {
  size_t size_bytes;       // equal on all ranks, or there is none
  std::string purpose;     // the same: "kernels abi 1"
  std::string unwilling;   // why this rank can have none; "" where it can
  size_t first_bytes = 0;  // of them: more is not needed at once; 0: all of them are
};

// The ranks of one host give each other memory of their devices to map. They are processes, or
// threads; their devices reach each other, and may be the same one.
//
// Collective; waits for others only in `exchange`.
struct Meeting {
  // This rank's memory. Of all ranks once each is willing, and reaches the others. `first_bytes`:
  // the least that any of them needs at once.
  std::function<gpu::ExportedMemory(size_t first_bytes)> bring;
  // That of another rank.
  std::function<void(int rank, const gpu::ExportedMemory&)> take;

  // Why there is none: the same text on all ranks, naming the first rank that cannot; "" where all
  // have taken what all have brought.
  std::string run(const Seat& seat, const Wanted& wanted, const Exchange& exchange) const;
};

}  // namespace torch::comms::transport::nvl
