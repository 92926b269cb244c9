#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "transport/nvl/handle_exchange.hpp"

namespace torch::comms::transport::nvl {

// Device memory of one size on each rank, zeroed when it is made, and mapped by all ranks of a
// group. The ranks are processes of one host, or threads. Their devices reach each other, and
// several ranks may use the same device. The memory is freed when the last rank has released it.
//
// A part of it may be allocated later, at addresses that are reserved from the start, and filled
// with another value.
class SymmetricMemory {
 public:
  // Either all ranks have memory, or none has.
  struct SymmetricMemoryResult {
    std::unique_ptr<SymmetricMemory> memory;
    std::string error;  // the same on all ranks; names the first rank that failed
  };
  // Makes the memory on all ranks. Collective. A rank may ask for less at first:
  // MemoryRequest::initial_bytes, a multiple of 2 MB. All ranks get the least such part if it is
  // whole pages of the device's memory; otherwise they get all of it.
  // Blocks: see HandleExchange.
  // Throws: what `all_gather` throws.
  static SymmetricMemoryResult make(const RankContext& context, const MemoryRequest& request,
                                    const AllGatherStrings& all_gather);

  // Returns: whether all of the memory is allocated; the same on all ranks.
  bool is_complete() const noexcept { return size_bytes_ >= requested_bytes_; }
  // Allocates the rest of the memory and sets each byte of it to `value`. Collective, like make(),
  // with the same `context`. The memory may be in use meanwhile. Does nothing if is_complete().
  // Returns: "", or why the rest could not be allocated, the same on all ranks; then nothing has
  // changed.
  // Blocks: see HandleExchange.
  // Throws: what `all_gather` throws; nothing has changed on this rank then.
  std::string allocate_rest(const RankContext& context, unsigned char value,
                            const AllGatherStrings& all_gather);

  // Returns: allocated bytes on each rank, rounded up to whole pages of the device's memory.
  size_t size_bytes() const noexcept { return size_bytes_; }
  // Returns: the memory of `rank` as this process maps it.
  void* at(int rank) const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
    return reinterpret_cast<void*>(ranges_[static_cast<size_t>(rank)].at());
  }

 private:
  explicit SymmetricMemory(size_t requested_bytes) : requested_bytes_(requested_bytes) {}
  // Allocates and maps `request` behind the allocated part. The ranks choose between its initial
  // part and all of it.
  std::string extend(const RankContext& context, const MemoryRequest& request, unsigned char value,
                     const AllGatherStrings& all_gather);

  const size_t requested_bytes_;
  size_t size_bytes_ = 0;
  std::vector<gpu::AddressRange> ranges_;  // by rank
  std::vector<gpu::ShareableMemory> parts_;
};

}  // namespace torch::comms::transport::nvl
