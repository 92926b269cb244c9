#include "ctran/team/kernel_selection.hpp"

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;

TEST(Selection, HasARowForEveryCollectiveButScatterAndEveryNumberOfRanks) {
  for (int index = 0; index <= static_cast<int>(Collective::kBarrier); ++index) {
    const auto collective = static_cast<Collective>(index);
    for (int ranks = 2; ranks <= kernels::kMaxRanks; ++ranks)
      EXPECT_EQ(prefers_kernels(collective, ranks, 1024), collective != Collective::kScatter);
  }
  EXPECT_FALSE(prefers_kernels(Collective::kAllReduce, kernels::kMaxRanks + 1, 1024));
}

TEST(Selection, EndsAtTheSizeOfTheFirstRowThatFits) {
  for (const auto& row : default_rows()) {
    if (row.collective == Collective::kBarrier) continue;
    EXPECT_TRUE(prefers_kernels(row.collective, row.ranks.last, row.bytes.last));
    EXPECT_FALSE(prefers_kernels(row.collective, row.ranks.last, row.bytes.last + 1));
  }
}

TEST(Selection, ReadsWishesByName) {
  EXPECT_EQ(parse_kernel_preference("hint", "auto"), KernelPreference{});
  EXPECT_EQ(parse_kernel_preference("hint", "nccl").provider,
            KernelPreference::KernelProvider::kVendor);
  EXPECT_EQ(parse_kernel_preference("hint", "kernels").provider,
            KernelPreference::KernelProvider::kKernels);
  for (int i = 1; i < kernels::kAlgorithms; ++i) {
    const auto preference =
        parse_kernel_preference("hint", name_of(static_cast<KernelAlgorithm>(i)));
    EXPECT_EQ(preference.provider, KernelPreference::KernelProvider::kKernels);
    EXPECT_EQ(preference.algorithm, static_cast<KernelAlgorithm>(i));
  }
  const auto limited = parse_kernel_preference("hint", "two_shot_line/32");
  EXPECT_EQ(limited.algorithm, KernelAlgorithm::kTwoShotLL128);
  EXPECT_EQ(limited.blocks, 32);
  const auto open = parse_kernel_preference("hint", "auto/16", /*has_library=*/false);
  EXPECT_EQ(open.provider, KernelPreference::KernelProvider::kAutomatic);
  EXPECT_EQ(open.blocks, 16);
  const auto kernels = parse_kernel_preference("hint", "kernels/8");
  EXPECT_EQ(kernels.provider, KernelPreference::KernelProvider::kKernels);
  EXPECT_EQ(kernels.algorithm, KernelAlgorithm::kAutomatic);
  EXPECT_EQ(kernels.blocks, 8);
}

TEST(Selection, NamesOfCtranMeanTheNearestOfOurs) {
  for (const auto& [name, ours] : {std::pair{"ctran", "kernels"},
                                   {"ctgraph", "kernels"},
                                   {"ctdirect", "one_shot_line"},
                                   {"ctring", "two_shot_line"},
                                   {"ctpipeline", "two_shot_line"},
                                   {"ctrd", "one_shot_ll"},
                                   {"ctp2p", "nccl"}}) {
    EXPECT_TRUE(is_ctran_algorithm(name));
    EXPECT_FALSE(is_ctran_algorithm(ours));
    EXPECT_EQ(parse_kernel_preference("hint", name), parse_kernel_preference("hint", ours)) << name;
  }
  EXPECT_EQ(parse_kernel_preference("hint", "ctring/32"),
            parse_kernel_preference("hint", "two_shot_line/32"));
  EXPECT_EQ(parse_kernel_preference("hint", "ctran/8"),
            parse_kernel_preference("hint", "kernels/8"));
  for (const auto* name : {"ctran", "ctgraph", "ctp2p"})
    EXPECT_EQ(parse_kernel_preference("hint", name, /*has_library=*/false), KernelPreference{})
        << name;
  EXPECT_EQ(parse_kernel_preference("hint", "ctrd", /*has_library=*/false).algorithm,
            KernelAlgorithm::kOneShotLL);
}

TEST(Selection, AWishThatCannotBeIsRefusedWithWhatCan) {
  const auto why = [](std::string_view text, bool has_library) -> std::string {
    try {
      parse_kernel_preference("knob", text, has_library);
      return "taken";
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kInvalidArgument);
      return e.why();
    }
  };
  EXPECT_EQ(why("fast", true),
            "knob='fast' is not allowed: expected auto, nccl, kernels, one_shot_ll, one_shot_line "
            "or two_shot_line");
  EXPECT_EQ(why("nccl", false),
            "knob='nccl' is not allowed: expected auto, one_shot_ll, one_shot_line or "
            "two_shot_line");
  EXPECT_NE(why("nccl/4", true).find("expected auto, nccl"), std::string::npos);
  EXPECT_NE(why("auto/0", true).find("expected auto/<blocks>, 1 to 1024"), std::string::npos);
  EXPECT_NE(why("ctbrucks", true).find("expected auto, nccl"), std::string::npos);
  for (const auto* text : {"one_shot_ll/", "one_shot_ll/0", "one_shot_ll/1025", "one_shot_ll/4x"})
    EXPECT_NE(why(text, true).find("expected one_shot_ll/<blocks>, 1 to 1024"), std::string::npos);
}

TEST(Selection, OfMeasuredRowsTheFirstThatFitsAndIsAcceptedCounts) {
  using kernels::ElementKind;
  using kernels::LaunchMode;
  const auto row = [](size_t last, ElementKind kind, LaunchMode mode, int blocks) {
    return kernels::SelectionRow{
        Collective::kAllReduce, {2, 4}, {0, last}, KernelAlgorithm::kOneShotLL, blocks, kind, mode};
  };
  const MeasuredRows rows({row(100, ElementKind::kInteger, LaunchMode::kAny, 1),
                           row(100, ElementKind::kAny, LaunchMode::kGraph, 2),
                           row(200, ElementKind::kAny, LaunchMode::kAny, 3),
                           row(200, ElementKind::kAny, LaunchMode::kAny, 4)});
  EXPECT_TRUE(rows.has_modes(Collective::kAllReduce));
  EXPECT_FALSE(rows.has_modes(Collective::kReduce));
  const auto blocks = [&](size_t bytes, ElementKind kind, LaunchMode mode, int ranks, int refused) {
    const auto* const found =
        rows.find({Collective::kAllReduce, ranks, bytes, kind, mode},
                  [&](const kernels::SelectionRow& each) { return each.blocks != refused; });
    return found == nullptr ? 0 : found->blocks;
  };
  EXPECT_EQ(blocks(100, ElementKind::kInteger, LaunchMode::kGraph, 2, 0), 1);
  EXPECT_EQ(blocks(100, ElementKind::kFloat, LaunchMode::kGraph, 2, 0), 2);
  EXPECT_EQ(blocks(100, ElementKind::kFloat, LaunchMode::kEager, 2, 0), 3);
  EXPECT_EQ(blocks(100, ElementKind::kFloat, LaunchMode::kEager, 2, 3), 4);
  EXPECT_EQ(blocks(201, ElementKind::kFloat, LaunchMode::kEager, 2, 0), 0);
  EXPECT_EQ(blocks(100, ElementKind::kFloat, LaunchMode::kEager, 5, 0), 0);
  EXPECT_FALSE(rows.has_registered());
}

TEST(Selection, RowsMayBeForFewBlocksOrForRegisteredTensorsAlone) {
  using kernels::TensorMemory;
  const auto row = [](TensorMemory memory, int within, int blocks) {
    kernels::SelectionRow result{
        Collective::kAllReduce, {2, 2}, {0, 9}, KernelAlgorithm::kOneShotLL128, blocks};
    result.memory = memory;
    result.block_limit = within;
    return result;
  };
  const MeasuredRows rows({row(TensorMemory::kAny, 8, 5), row(TensorMemory::kRegistered, 16, 10),
                           row(TensorMemory::kPlain, 0, 48), row(TensorMemory::kAny, 0, 64)});
  EXPECT_TRUE(rows.has_registered());
  const auto blocks = [&](TensorMemory memory, int within) {
    const auto* const found = rows.find({Collective::kAllReduce, 2, 1, kernels::ElementKind::kFloat,
                                         kernels::LaunchMode::kEager, memory, within},
                                        [](const kernels::SelectionRow&) { return true; });
    return kernels::blocks_within(found->blocks, within);
  };
  EXPECT_EQ(blocks(TensorMemory::kPlain, 0), 48);
  EXPECT_EQ(blocks(TensorMemory::kPlain, 8), 5);
  EXPECT_EQ(blocks(TensorMemory::kPlain, 4), 4) << "never more than there are";
  EXPECT_EQ(blocks(TensorMemory::kPlain, 32), 32) << "that of eight is for no more";
  EXPECT_EQ(blocks(TensorMemory::kRegistered, 16), 10);
  EXPECT_EQ(blocks(TensorMemory::kRegistered, 0), 64);
  EXPECT_EQ(kernels::blocks_within(0, 7), 7);
}

}  // namespace
}  // namespace torch::comms::ctran
