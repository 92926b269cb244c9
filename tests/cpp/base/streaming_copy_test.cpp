#include "base/os/streaming_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace torch::comms::base {
namespace {

TEST(Copy, IsACopyOfAnySizeAndAlignmentAndTouchesNothingElse) {
  constexpr size_t kRoom = 128;
  constexpr std::byte kUntouched{0xee};
  for (const bool past_caches : {false, true})
    for (const size_t bytes : {0, 1, 63, 64, 65, 4097, 300'007})
      for (const size_t shift : {0, 1, 32, 63}) {
        std::vector<std::byte> from(bytes + 3), into(bytes + 2 * kRoom, kUntouched);
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 251);
        auto* const target = into.data() + shift;
        copy_bytes(target, from.data() + 3, bytes, past_caches);
        EXPECT_TRUE(std::equal(from.begin() + 3, from.end(), target)) << bytes << ", " << shift;
        const auto is_untouched = [&](std::byte b) { return b == kUntouched; };
        EXPECT_TRUE(std::all_of(into.data(), target, is_untouched));
        EXPECT_TRUE(std::all_of(target + bytes, into.data() + into.size(), is_untouched));
        copy_bytes(target, target, bytes, past_caches);
        EXPECT_TRUE(std::equal(from.begin() + 3, from.end(), target)) << "onto itself";
      }
}

}  // namespace
}  // namespace torch::comms::base
