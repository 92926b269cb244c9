#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.hpp"
#include "gpu/driver.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms::transport::nvl {

// Text that crosses between processes as it lies in memory; what does not fit is cut off.
template <size_t kSize>
class Words {
 public:
  Words() = default;
  explicit Words(std::string_view text) { text.copy(bytes_.data(), kSize - 1); }
  std::string text() const { return std::string(bytes_.data(), ::strnlen(bytes_.data(), kSize)); }

 private:
  std::array<char, kSize> bytes_{};
};

// What a rank tells the others of itself, before anything is made.
struct Card {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t size_bytes = 0;
  uint64_t first_bytes = 0;  // see Wanted; not 0 where there are any
  base::Secret secret = {};  // whoever connects shows it
  gpu::DriverUuid device = {};
  Words<128> host;
  Words<48> socket;
  Words<64> purpose;
  Words<200> unwilling;

  static constexpr uint32_t kMagic = 0x4c564e54;  // "TNVL"
  static constexpr uint32_t kVersion = 2;
};
static_assert(sizeof(Card) <= kMaxWords);

std::string to_words(const Card& card);
// A card that says so where `words` are none.
Card card_of(const std::string& words);

// Why the group of these cannot have it; "" where nothing is known that speaks against it. The same
// for all who see the same cards.
std::string objection(const std::vector<Card>& cards);

// The first of the ranks' verdicts that is a reason, naming its rank; "" where there is none.
std::string first_reason(const std::vector<std::string>& verdicts);

}  // namespace torch::comms::transport::nvl
