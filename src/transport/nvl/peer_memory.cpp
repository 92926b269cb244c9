#include "transport/nvl/peer_memory.hpp"

#include <utility>

namespace torch::comms::transport::nvl {

PeerMemory::PeerMemoryResult PeerMemory::open(const RankContext& seat, const OwnBuffer& own,
                                              std::string unwilling,
                                              const AllGatherStrings& exchange) {
  std::unique_ptr<PeerMemory> made(new PeerMemory(seat.rank, own));
  made->imported_.resize(static_cast<size_t>(seat.size));
  const HandleExchange meeting{
      // The memory of a single rank is not mapped by a peer.
      .export_memory =
          [&](size_t) {
            return seat.size == 1 ? gpu::ExportedMemory{}
                                  : gpu::export_memory(seat.driver, own.at, own.size_bytes);
          },
      .import_memory =
          [&](int rank, const gpu::ExportedMemory& theirs) {
            made->imported_[static_cast<size_t>(rank)] = std::make_unique<gpu::ImportedMemory>(
                seat.runtime, seat.driver, seat.device, theirs.descriptor, theirs.info);
          }};
  const MemoryRequest wanted{0, "memory of peers", std::move(unwilling)};
  auto why_not = meeting.run(seat, wanted, exchange);
  if (!why_not.empty()) made.reset();
  return {std::move(made), std::move(why_not)};
}

void* PeerMemory::at(int rank) const noexcept {
  return rank == rank_ ? own_.at : imported_[static_cast<size_t>(rank)]->at();
}

size_t PeerMemory::size_bytes(int rank) const noexcept {
  return rank == rank_ ? own_.size_bytes : imported_[static_cast<size_t>(rank)]->size_bytes();
}

}  // namespace torch::comms::transport::nvl
