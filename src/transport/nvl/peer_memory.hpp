#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpu/imported_memory.hpp"
#include "transport/nvl/handle_exchange.hpp"

namespace torch::comms::transport::nvl {

// Memory that each rank of a group has on its device already, of any size, mapped by all of them.
class PeerMemory {
 public:
  // This rank's part, which outlives it.
  struct OwnBuffer {
    void* at;
    size_t size_bytes;  // 0 is legal
  };
  // Either all ranks have it, or none.
  struct PeerMemoryResult {
    std::unique_ptr<PeerMemory> memory;
    std::string error;  // the same text on all ranks, naming the first rank that cannot
  };
  // Collective; see HandleExchange. The seat's device is current. `unwilling`: see MemoryRequest.
  static PeerMemoryResult open(const RankContext& seat, const OwnBuffer& own, std::string unwilling,
                               const AllGatherStrings& exchange);

  // What `rank` has, as this process maps it; null where that is nothing.
  void* at(int rank) const noexcept;
  size_t size_bytes(int rank) const noexcept;

 private:
  PeerMemory(int rank, const OwnBuffer& own) : rank_(rank), own_(own) {}
  const int rank_;
  const OwnBuffer own_;
  std::vector<std::unique_ptr<gpu::ImportedMemory>> imported_;  // by rank; null at this one's
};

}  // namespace torch::comms::transport::nvl
