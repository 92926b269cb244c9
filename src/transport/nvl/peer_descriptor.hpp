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

// Text that crosses between processes as it lies in memory; what does not fit is cut off.
template <size_t kSize>
class FixedString {
 public:
  FixedString() = default;
  explicit FixedString(std::string_view text) { text.copy(bytes_.data(), kSize - 1); }
  std::string text() const { return std::string(bytes_.data(), ::strnlen(bytes_.data(), kSize)); }

 private:
  std::array<char, kSize> bytes_{};
};

// What a rank tells the others of itself, before anything is made.
struct PeerDescriptor {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t size_bytes = 0;
  uint64_t initial_bytes = 0;  // see MemoryRequest; not 0 where there are any
  base::Secret secret = {};    // whoever connects shows it
  gpu::DriverUuid device = {};
  FixedString<128> host;
  FixedString<48> socket;
  FixedString<64> purpose;
  FixedString<200> unavailable_reason;

  static constexpr uint32_t kMagic = 0x4c564e54;  // "TNVL"
  static constexpr uint32_t kVersion = 2;
};
static_assert(sizeof(PeerDescriptor) <= kMaxTextBytes);

std::string serialize_descriptor(const PeerDescriptor& card);
// A card that says so where `words` are none.
PeerDescriptor parse_descriptor(const std::string& words);

// Why the group of these cannot have it; "" where nothing is known that speaks against it. The same
// for all who see the same cards.
std::string find_incompatibility(const std::vector<PeerDescriptor>& cards);

// The first of the ranks' verdicts that is a reason, naming its rank; "" where there is none.
std::string first_error(const std::vector<std::string>& verdicts);

}  // namespace torch::comms::transport::nvl
