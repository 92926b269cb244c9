#include "core/comm/operand_checks.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

TEST(CheckFactor, RefusesWhatCannotScaleTheData) {
  const auto refused = [](const PreMulSumFactorT& factor, at::ScalarType dtype) {
    try {
      require_valid_factor(factor, dtype, 4);
      return false;
    } catch (const CommError& e) {
      return e.code() == Errc::kInvalidArgument;
    }
  };
  EXPECT_TRUE(refused(2.0, at::kInt));
  EXPECT_TRUE(refused(at::ones({1}), at::kLong));
  EXPECT_TRUE(refused(at::ones({3}), at::kFloat)) << "neither one nor four elements";
  EXPECT_TRUE(refused(at::ones({1}, at::kComplexFloat), at::kFloat));
  EXPECT_FALSE(refused(at::ones({1}, at::kInt), at::kFloat));
  EXPECT_FALSE(refused(at::ones({2, 2}), at::kHalf));
}

TEST(RequirePlainMemory, TakesWhatLiesInMemoryAsItIs) {
  require_plain_memory(at::ones({3}));
  require_plain_memory(at::ones({0}));
  const auto complex = at::complex(at::ones({2}), at::ones({2}));
  EXPECT_THROW(require_plain_memory(at::conj(complex)), CommError);
  EXPECT_THROW(require_plain_memory(at::imag(at::conj(complex))), CommError);
  EXPECT_THROW(require_plain_memory(at::ones({2}, at::device(at::kMeta))), CommError);
}

}  // namespace
}  // namespace torch::comms
