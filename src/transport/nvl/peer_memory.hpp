#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpu/imported_memory.hpp"
#include "transport/nvl/handle_exchange.hpp"

namespace torch::comms::transport::nvl {

// Device memory that each rank of a group has already, of any size, mapped by all ranks.
class PeerMemory {
 public:
  // This rank's memory. It must outlive the PeerMemory.
  struct OwnBuffer {
    void* at;
    size_t size_bytes;  // may be 0
  };
  // Either all ranks have memory, or none has.
  struct PeerMemoryResult {
    std::unique_ptr<PeerMemory> memory;
    std::string error;  // the same on all ranks; names the first rank that failed
  };
  // Maps the memory of all ranks. Collective; see HandleExchange. The device of `context` must be
  // current. `unavailable_reason`: MemoryRequest::unavailable_reason.
  static PeerMemoryResult open(const RankContext& context, const OwnBuffer& own,
                               std::string unavailable_reason, const AllGatherStrings& all_gather);

  // Returns: the memory of `rank` as this process maps it; may be nullptr if its size is 0.
  void* at(int rank) const noexcept;
  size_t size_bytes(int rank) const noexcept;

 private:
  PeerMemory(int rank, const OwnBuffer& own) : rank_(rank), own_(own) {}
  const int rank_;
  const OwnBuffer own_;
  std::vector<std::unique_ptr<gpu::ImportedMemory>> imported_;  // by rank; nullptr for this rank
};

}  // namespace torch::comms::transport::nvl
