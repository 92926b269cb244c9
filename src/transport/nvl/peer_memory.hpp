#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpu/imported_memory.hpp"
#include "transport/nvl/meeting.hpp"

namespace torch::comms::transport::nvl {

// Memory that each rank of a group has on its device already, of any size, mapped by all of them.
class PeerMemory {
 public:
  // This rank's part, which outlives it.
  struct Own {
    void* at;
    size_t size_bytes;  // 0 is legal
  };
  // Either all ranks have it, or none.
  struct Outcome {
    std::unique_ptr<PeerMemory> memory;
    std::string why_not;  // the same text on all ranks, naming the first rank that cannot
  };
  // Collective; see ExchangeSession. The seat's device is current. `unwilling`: see Wanted.
  static Outcome open(const Seat& seat, const Own& own, std::string unwilling,
                      const Exchange& exchange);

  // What `rank` has, as this process maps it; null where that is nothing.
  void* at(int rank) const noexcept;
  size_t size_bytes(int rank) const noexcept;

 private:
  PeerMemory(int rank, const Own& own) : rank_(rank), own_(own) {}
  const int rank_;
  const Own own_;
  std::vector<std::unique_ptr<gpu::ImportedMemory>> theirs_;  // by rank; null at this one's
};

}  // namespace torch::comms::transport::nvl
