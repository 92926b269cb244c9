#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/secret.hpp"
#include "gpu/driver.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms::transport::nvl {

// A text of fixed size that processes exchange as it lies in memory; a longer text is truncated.
template <size_t kSize>
class FixedString {
 public:
  FixedString() = default;
  explicit FixedString(std::string_view text) { text.copy(bytes_.data(), kSize - 1); }
  std::string text() const { return std::string(bytes_.data(), ::strnlen(bytes_.data(), kSize)); }

 private:
  std::array<char, kSize> bytes_{};
};

// What a rank publishes about its device before memory handles are exchanged.
struct PeerDescriptor {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t size_bytes = 0;
  uint64_t initial_bytes = 0;  // as in MemoryRequest, but size_bytes instead of 0
  base::Secret secret = {};    // a connecting rank sends it as proof
  gpu::DriverUuid device = {};
  FixedString<128> host;
  FixedString<48> socket;
  FixedString<64> purpose;
  FixedString<200> unavailable_reason;

  static constexpr uint32_t kMagic = 0x4c564e54;  // "TNVL"
  static constexpr uint32_t kVersion = 2;
};
static_assert(sizeof(PeerDescriptor) <= kMaxTextBytes);

// Returns: the bytes of `descriptor`.
std::string serialize_descriptor(const PeerDescriptor& descriptor);
// Returns: the descriptor in `serialized`; if there is none, one whose unavailable_reason says so.
PeerDescriptor parse_descriptor(const std::string& serialized);

// Compares the descriptors of all ranks.
// Returns: why the group cannot share memory; "" if no reason is known. Ranks with the same
// descriptors get the same text.
std::string find_incompatibility(const std::vector<PeerDescriptor>& descriptors);

// Returns: the first error among the ranks' texts, with its rank; "" if there is none.
std::string first_error(const std::vector<std::string>& errors);

}  // namespace torch::comms::transport::nvl
