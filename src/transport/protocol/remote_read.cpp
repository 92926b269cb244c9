#include "transport/protocol/remote_read.hpp"

#include <cstring>

#include "transport/protocol/read_validity_words.hpp"

namespace torch::comms::transport {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
constexpr int kPathShift = 16,
              // Bit positions in the first word; its low bits are the slot.
    kRegionShift = 32;

uint64_t number_of(std::optional<CopyPathTuner::CopyPath> path) noexcept {
  return path ? 1 + static_cast<uint64_t>(*path) : 0;
}

}  // namespace

RemoteReadDescriptor::Payload::Payload(const RemoteReadDescriptor& offer) noexcept {
  TC_CHECK(offer.count >= 1 && offer.count <= kMaxSegments);
  words_[0] =
      uint64_t{offer.region} << kRegionShift | number_of(offer.path) << kPathShift | offer.slot;
  words_[1] = offer.word;
  for (size_t i = 0; i < offer.count; ++i) {
    if (i > 0) words_[count_++] = offer.segments[i - 1].bytes;
    words_[count_++] = offer.segments[i].address;
  }
}

bool RemoteReadDescriptor::is_payload_size(size_t payload_bytes) noexcept {
  return payload_bytes % (2 * kWord) == kWord && payload_bytes >= 3 * kWord &&
         payload_bytes <= (1 + 2 * kMaxSegments) * kWord;
}

std::optional<RemoteReadDescriptor> RemoteReadDescriptor::parse(ConstBytes payload,
                                                                uint64_t length) noexcept {
  if (!is_payload_size(payload.size())) return std::nullopt;
  const auto word = [&](size_t i) {
    uint64_t value;
    std::memcpy(&value, payload.data() + i * kWord, kWord);
    return value;
  };
  RemoteReadDescriptor offer;
  offer.slot = static_cast<uint16_t>(word(0));
  const auto path_number = static_cast<uint16_t>(word(0) >> kPathShift);
  offer.region = static_cast<uint32_t>(word(0) >> kRegionShift);
  if (offer.slot >= ReadValidityWords::kSlots ||
      path_number > number_of(CopyPathTuner::CopyPath::kCopyInOut))
    return std::nullopt;
  if (path_number > 0) offer.path = static_cast<CopyPathTuner::CopyPath>(path_number - 1);
  offer.word = word(1);
  offer.count = (payload.size() / kWord - 1) / 2;
  uint64_t left = length;
  for (size_t i = 0; i < offer.count; ++i) {
    const bool last = i + 1 == offer.count;
    const uint64_t bytes = last ? left : word(3 + 2 * i);
    if (bytes > left) return std::nullopt;
    offer.segments[i] = {word(2 + 2 * i), bytes};
    left -= bytes;
  }
  return offer;
}

}  // namespace torch::comms::transport
