#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "transport/nvl/meeting.hpp"

namespace torch::comms::transport::nvl {

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
