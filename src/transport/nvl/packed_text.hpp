#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "transport/nvl/symmetric_memory.hpp"

// Texts of an AllGatherStrings as blocks of one size, for an all-gather of equal parts.
namespace torch::comms::transport::nvl {

inline constexpr size_t kPackedTextBytes = sizeof(uint64_t) + kMaxTextBytes;
using PackedText = std::array<std::byte, kPackedTextBytes>;

// Packs a text; bytes after kMaxTextBytes are cut off.
inline PackedText pack_text(const std::string& text) {
  PackedText packed{};
  const uint64_t length = std::min(text.size(), kMaxTextBytes);
  std::memcpy(packed.data(), &length, sizeof length);
  std::memcpy(packed.data() + sizeof length, text.data(), length);
  return packed;
}

// Unpacks `count` consecutive packed texts.
inline std::vector<std::string> unpack_texts(const void* at, size_t count) {
  std::vector<std::string> all;
  const auto* part = static_cast<const char*>(at);
  for (size_t i = 0; i < count; ++i, part += kPackedTextBytes) {
    uint64_t length = 0;
    std::memcpy(&length, part, sizeof length);
    all.emplace_back(part + sizeof length, std::min<size_t>(length, kMaxTextBytes));
  }
  return all;
}

}  // namespace torch::comms::transport::nvl
