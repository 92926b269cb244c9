#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "gpu/driver.hpp"
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
    return e.why().substr(0, kMaxWords);
  }
}

// One rank, and its device.
struct Seat {
  int rank, size;
  int device;
  std::shared_ptr<const gpu::Runtime> runtime;
  std::shared_ptr<const gpu::Driver> driver;  // null where there is none; then `unwilling` says why
};

// What this rank wants of it.
struct Wanted {
  size_t size_bytes;
  std::string purpose;    // equal on all ranks, or there is none: "kernels abi 1"
  std::string unwilling;  // why this rank can have none; "" where it can
};

// Memory on each rank's device, of one size, zeroed when it is made, and mapped by all ranks of a
// group. The ranks are processes of one host, or threads; their devices reach each other, and may
// be the same one. It goes when the last rank has let go of it.
class SymmetricMemory {
 public:
  // Either all ranks have it, or none.
  struct Outcome {
    std::unique_ptr<SymmetricMemory> memory;
    std::string why_not;  // the same text on all ranks, naming the first rank that cannot
  };
  // Collective; waits for others only in `exchange`.
  static Outcome make(const Seat& seat, const Wanted& wanted, const Exchange& exchange);

  size_t size_bytes() const noexcept { return pieces_.front().size_bytes(); }
  // What `rank` has, as this process maps it.
  void* at(int rank) const noexcept { return pieces_[static_cast<size_t>(rank)].at(); }

 private:
  SymmetricMemory() = default;
  std::vector<gpu::MappableMemory> pieces_;  // by rank
};

}  // namespace torch::comms::transport::nvl
