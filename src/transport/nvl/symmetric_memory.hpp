#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "transport/nvl/handle_exchange.hpp"

namespace torch::comms::transport::nvl {

// Memory on each rank's device, of one size, zeroed when it is made, and mapped by all ranks of a
// group. The ranks are processes of one host, or threads; their devices reach each other, and may
// be the same one. It goes when the last rank has let go of it.
//
// A part of it may come later, at addresses that it was given at once, with a value of its own.
class SymmetricMemory {
 public:
  // Either all ranks have it, or none.
  struct SymmetricMemoryResult {
    std::unique_ptr<SymmetricMemory> memory;
    std::string error;  // the same text on all ranks, naming the first rank that cannot
  };
  // Collective; waits for others only in `exchange`. Where a rank wants no more at once than
  // Wanted::first_bytes, a multiple of 2 MB, all have that, if whole pages of the device's memory
  // end there.
  static SymmetricMemoryResult make(const RankContext& seat, const MemoryRequest& wanted,
                                    const AllGatherStrings& exchange);

  // Whether all of it is there. Alike on all ranks.
  bool is_complete() const noexcept { return size_bytes_ >= requested_bytes_; }
  // What it lacks comes, each byte of it `value`. Collective, as make(), with the same seat; "", or
  // why it does not come, and then nothing has changed. Whoever uses the memory meanwhile is not
  // disturbed.
  std::string allocate_rest(const RankContext& seat, unsigned char value,
                            const AllGatherStrings& exchange);

  // That there are on each rank.
  size_t size_bytes() const noexcept { return size_bytes_; }
  // What `rank` has, as this process maps it.
  void* at(int rank) const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
    return reinterpret_cast<void*>(ranges_[static_cast<size_t>(rank)].at());
  }

 private:
  explicit SymmetricMemory(size_t wanted_bytes) : requested_bytes_(wanted_bytes) {}
  // Brings `wanted` behind what there is, as far as is left to the ranks' choice.
  std::string extend(const RankContext& seat, const MemoryRequest& wanted, unsigned char value,
                     const AllGatherStrings& exchange);

  const size_t requested_bytes_;
  size_t size_bytes_ = 0;
  std::vector<gpu::AddressRange> ranges_;  // by rank
  std::vector<gpu::ShareableMemory> parts_;
};

}  // namespace torch::comms::transport::nvl
