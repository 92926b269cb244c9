#include "transport/nvl/peer_memory.hpp"

#include <utility>

namespace torch::comms::transport::nvl {

PeerMemory::PeerMemoryResult PeerMemory::open(const RankContext& context, const OwnBuffer& own,
                                              std::string unavailable_reason,
                                              const AllGatherStrings& all_gather) {
  std::unique_ptr<PeerMemory> result(new PeerMemory(context.rank, own));
  result->imported_.resize(static_cast<size_t>(context.size));
  const HandleExchange exchange{
      // The memory of a single rank is not mapped by a peer.
      .export_memory =
          [&](size_t) {
            return context.size == 1 ? gpu::ExportedMemory{}
                                     : gpu::export_memory(context.driver, own.at, own.size_bytes);
          },
      .import_memory =
          [&](int rank, const gpu::ExportedMemory& theirs) {
            result->imported_[static_cast<size_t>(rank)] = std::make_unique<gpu::ImportedMemory>(
                context.runtime, context.driver, context.device, theirs.descriptor, theirs.info);
          }};
  const MemoryRequest request{0, "memory of peers", std::move(unavailable_reason)};
  auto why_not = exchange.run(context, request, all_gather);
  if (!why_not.empty()) result.reset();
  return {std::move(result), std::move(why_not)};
}

void* PeerMemory::at(int rank) const noexcept {
  return rank == rank_ ? own_.at : imported_[static_cast<size_t>(rank)]->at();
}

size_t PeerMemory::size_bytes(int rank) const noexcept {
  return rank == rank_ ? own_.size_bytes : imported_[static_cast<size_t>(rank)]->size_bytes();
}

}  // namespace torch::comms::transport::nvl
