#include "core/window/window_metadata.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstring>

namespace torch::comms {
namespace {

TEST(TensorMeta, IsReadAsItWasWritten) {
  const auto [dtype, sizes] =
      parse_tensor_meta(encode_tensor_meta(at::empty({3, 0, 2}, at::kHalf)));
  EXPECT_EQ(dtype, at::kHalf);
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 0, 2}));
}

// A peer with another version of torch may have dtypes that this rank does not know.
TEST(TensorMeta, AnUnknownDtypeANegativeSizeOrAnotherLengthIsAMismatch) {
  const auto refused = [](const std::string& text) {
    try {
      parse_tensor_meta(text);
      return false;
    } catch (const CommError& e) {
      return e.code() == Errc::kMismatch;
    }
  };
  const auto whole = encode_tensor_meta(at::empty({3, 2}));
  EXPECT_FALSE(refused(whole));
  EXPECT_TRUE(refused(whole.substr(1)));
  auto unknown = whole;
  unknown[0] = static_cast<char>(at::ScalarType::NumOptions);
  EXPECT_TRUE(refused(unknown));
  auto negative = whole;
  const int64_t size = -3;
  std::memcpy(negative.data() + 8, &size, sizeof size);  // the first size begins at byte 8
  EXPECT_TRUE(refused(negative));
}

}  // namespace
}  // namespace torch::comms
