#include "transport/nvl/peer_descriptor.hpp"

#include <cstring>

namespace torch::comms::transport::nvl {
namespace {

std::string of_rank(size_t rank, const std::string& what) {
  return "rank " + std::to_string(rank) + ": " + what;
}

}  // namespace

std::string serialize_descriptor(const PeerDescriptor& card) {
  return std::string(reinterpret_cast<const char*>(&card), sizeof card);
}

PeerDescriptor parse_descriptor(const std::string& words) {
  PeerDescriptor card;
  if (words.size() >= sizeof card) std::memcpy(&card, words.data(), sizeof card);
  if (words.size() < sizeof card || card.magic != PeerDescriptor::kMagic ||
      card.version != PeerDescriptor::kVersion) {
    card = PeerDescriptor();
    card.unavailable_reason =
        FixedString<200>("another torchcomms version; all ranks must run the same version");
  }
  return card;
}

std::string find_incompatibility(const std::vector<PeerDescriptor>& cards) {
  const auto& first = cards.front();
  for (size_t rank = 0; rank < cards.size(); ++rank)
    if (const auto why = cards[rank].unavailable_reason.text(); !why.empty())
      return of_rank(rank, why);
  for (size_t rank = 1; rank < cards.size(); ++rank) {
    const auto& card = cards[rank];
    if (card.host.text() != first.host.text())
      return "ranks 0 and " + std::to_string(rank) +
             " are on different hosts, or in containers that do not share a network namespace";
    if (card.purpose.text() != first.purpose.text() || card.size_bytes != first.size_bytes)
      return "ranks 0 and " + std::to_string(rank) + " differ: " + first.purpose.text() + " with " +
             std::to_string(first.size_bytes) + " bytes, and " + card.purpose.text() + " with " +
             std::to_string(card.size_bytes);
  }
  return {};
}

std::string first_error(const std::vector<std::string>& verdicts) {
  for (size_t rank = 0; rank < verdicts.size(); ++rank)
    if (!verdicts[rank].empty()) return of_rank(rank, verdicts[rank]);
  return {};
}

}  // namespace torch::comms::transport::nvl
