#include "transport/nvl/peer_descriptor.hpp"

#include <cstring>

namespace torch::comms::transport::nvl {
namespace {

std::string of_rank(size_t rank, const std::string& what) {
  return "rank " + std::to_string(rank) + ": " + what;
}

}  // namespace

std::string serialize_descriptor(const PeerDescriptor& descriptor) {
  return std::string(reinterpret_cast<const char*>(&descriptor), sizeof descriptor);
}

PeerDescriptor parse_descriptor(const std::string& serialized) {
  PeerDescriptor descriptor;
  if (serialized.size() >= sizeof descriptor)
    std::memcpy(&descriptor, serialized.data(), sizeof descriptor);
  if (serialized.size() < sizeof descriptor || descriptor.magic != PeerDescriptor::kMagic ||
      descriptor.version != PeerDescriptor::kVersion) {
    descriptor = PeerDescriptor();
    descriptor.unavailable_reason =
        FixedString<200>("another torchcomms version; all ranks must run the same version");
  }
  return descriptor;
}

std::string find_incompatibility(const std::vector<PeerDescriptor>& descriptors) {
  const auto& first = descriptors.front();
  for (size_t rank = 0; rank < descriptors.size(); ++rank)
    if (const auto why = descriptors[rank].unavailable_reason.text(); !why.empty())
      return of_rank(rank, why);
  for (size_t rank = 1; rank < descriptors.size(); ++rank) {
    const auto& descriptor = descriptors[rank];
    if (descriptor.host.text() != first.host.text())
      return "ranks 0 and " + std::to_string(rank) +
             " are on different hosts, or in containers that do not share a network namespace";
    if (descriptor.purpose.text() != first.purpose.text() ||
        descriptor.size_bytes != first.size_bytes)
      return "ranks 0 and " + std::to_string(rank) + " differ: " + first.purpose.text() + " with " +
             std::to_string(first.size_bytes) + " bytes, and " + descriptor.purpose.text() +
             " with " + std::to_string(descriptor.size_bytes);
  }
  return {};
}

std::string first_error(const std::vector<std::string>& errors) {
  for (size_t rank = 0; rank < errors.size(); ++rank)
    if (!errors[rank].empty()) return of_rank(rank, errors[rank]);
  return {};
}

}  // namespace torch::comms::transport::nvl
