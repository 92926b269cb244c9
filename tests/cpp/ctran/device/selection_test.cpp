#include "ctran/device/selection.hpp"

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

using kernels::Algorithm;
using kernels::Collective;

TEST(Selection, HasARowForEveryCollectiveButScatterAndEveryNumberOfRanks) {
  for (int index = 0; index <= static_cast<int>(Collective::kBarrier); ++index) {
    const auto collective = static_cast<Collective>(index);
    for (int ranks = 2; ranks <= kernels::kMaxRanks; ++ranks)
      EXPECT_EQ(prefers(collective, ranks, 1024), collective != Collective::kScatter);
  }
  EXPECT_FALSE(prefers(Collective::kAllReduce, kernels::kMaxRanks + 1, 1024));
}

TEST(Selection, EndsAtTheSizeOfTheFirstRowThatFits) {
  for (const auto& row : preferences()) {
    if (row.collective == Collective::kBarrier) continue;
    EXPECT_TRUE(prefers(row.collective, row.ranks_most, row.bytes_most));
    EXPECT_FALSE(prefers(row.collective, row.ranks_most, row.bytes_most + 1));
  }
}

TEST(Selection, ReadsWishesByName) {
  EXPECT_EQ(parse_wish("hint", "auto"), Wish{});
  EXPECT_EQ(parse_wish("hint", "nccl").who, Wish::Who::kVendor);
  EXPECT_EQ(parse_wish("hint", "kernels").who, Wish::Who::kKernels);
  for (int i = 1; i < kernels::kAlgorithms; ++i) {
    const auto wish = parse_wish("hint", name_of(static_cast<Algorithm>(i)));
    EXPECT_EQ(wish.who, Wish::Who::kKernels);
    EXPECT_EQ(wish.algorithm, static_cast<Algorithm>(i));
  }
  try {
    parse_wish("ncclx::algorithm", "fast");
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInvalidArgument);
    EXPECT_EQ(e.why(),
              "ncclx::algorithm='fast' is not allowed: expected auto, nccl, kernels, one_shot_ll, "
              "one_shot_line or two_shot_line");
  }
}

}  // namespace
}  // namespace torch::comms::ctran
