// A rank alone, for which NCCL 2.28 leaves elements out where it multiplies. The stand-in does so.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

class VendorAlone : public VendorTest {
 protected:
  static void expect_all(const at::Tensor& tensor, double value, const char* what) {
    EXPECT_TRUE(tensor.eq(value).all().item<bool>())
        << what << " of " << tensor.numel() << " " << tensor.dtype();
  }
};

TEST_F(VendorAlone, WhatMultipliesReachesTheLastElement) {
  on_ranks(1, [](Program& self) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16})
      for (const int64_t count : {1, 2049, 3029, 4097, 8193, 40001}) {
        const auto input = at::ones({count}, dtype);
        const auto reduced = [&](const char* what, const ReduceOp& op, double expected) {
          auto single = at::full({count}, 7, input.options());
          auto listed = at::full({count}, 7, input.options());
          auto in_place = at::ones({count}, dtype);
          self.comm->reduce_scatter_single(single, input, op, false);
          self.comm->reduce_scatter(listed, {input}, op, false);
          self.comm->all_reduce(in_place, op, false);
          self.synchronize();
          for (const auto& tensor : {single, listed, in_place}) expect_all(tensor, expected, what);
        };
        reduced("AVG", ReduceOp::AVG, 1);
        reduced("PREMUL_SUM", ReduceOp::make_nccl_premul_sum(0.5), 0.5);
      }
  });
}

class Float8 : public VendorTest, public testing::WithParamInterface<at::ScalarType> {};

TEST_P(Float8, IsAddedUpByLibrariesThatHaveIt) {
  on_ranks(2, [](Program& self) {
    const auto reduced = [&](const ReduceOp& op) {
      auto tensor = at::full({5}, 2.0 + self.rank, at::kFloat).to(GetParam());
      self.comm->all_reduce(tensor, op, false);
      self.synchronize();
      return tensor.to(at::kFloat);
    };
    EXPECT_TRUE(reduced(ReduceOp::SUM).eq(5).all().item<bool>());
    EXPECT_TRUE(reduced(ReduceOp::MAX).eq(3).all().item<bool>());
    EXPECT_TRUE(reduced(ReduceOp::make_nccl_premul_sum(0.5)).eq(2.5).all().item<bool>());
  });
}

TEST_P(Float8, IsRefusedByOlderOnes) {
  ::setenv(kNccl.library_variable, stand_in("libstand_in_nccl_old.so").c_str(), 1);
  on_ranks(1, [](Program& self) {
    auto tensor = at::ones({5}).to(GetParam());
    const auto error = error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_NE(error.why().find("needs NCCL 2.24.3"), std::string::npos) << error.why();
    EXPECT_FALSE(self.comm->getBackendImpl()->isAborted());
  });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Float8, testing::Values(at::kFloat8_e4m3fn, at::kFloat8_e5m2),
                         [](const auto& info) { return std::string(toString(info.param)); });

}  // namespace
}  // namespace torch::comms::nccl
