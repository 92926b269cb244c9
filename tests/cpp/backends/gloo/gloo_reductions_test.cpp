// The operations that combine numbers, on ranks that are threads. The arithmetic itself:
// arithmetic_test.cpp.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "backends/gloo/samples.hpp"
#include "backends/gloo/world.hpp"

namespace torch::comms {
namespace {

using namespace gloo_test;
using Tensors = std::vector<at::Tensor>;

// Every defined reduction of every dtype.
template <class Body>
void for_each_reduction(const Body& body) {
  for (const auto dtype : reducible())
    for (const auto op : kReductions)
      if (is_defined(dtype, op)) body(dtype, op);
}

// Exact but where a half or fp8 average must be rounded.
void expect_reduced(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_EQ(got.scalar_type(), want.scalar_type()) << what;
  EXPECT_TRUE(at::allclose(got.to(at::kComplexDouble), want.to(at::kComplexDouble), 1e-2, 1e-2))
      << what << "\n"
      << got << want;
}

at::Tensor reduced(RedOpType op, int size, at::ScalarType dtype, at::IntArrayRef shape,
                   int salt = 0) {
  Tensors inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(sample(rank + salt, dtype, shape));
  return reference(op, inputs);
}

class Worlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gloo, Worlds, ::testing::Values(1, 2, 3));

TEST_P(Worlds, AllReduceGivesTheReductionWithTheSameBitsEverywhere) {
  const int size = GetParam();
  on_ranks(size, [&](TorchComm& comm, int rank) {
    for_each_reduction([&](at::ScalarType dtype, RedOpType op) {
      for (const bool async_op : {false, true}) {
        auto tensor = sample(rank, dtype, {3, 5});
        comm.all_reduce(tensor, op, async_op)->wait();
        expect_reduced(tensor, reduced(op, size, dtype, {3, 5}), label(dtype, op));
        Tensors all;
        for (int i = 0; i < size; ++i) all.push_back(at::empty_like(tensor));
        comm.all_gather(all, tensor, false);
        for (const auto& other : all) EXPECT_TRUE(same_bits(other, tensor)) << label(dtype, op);
      }
    });
  });
}

TEST_P(Worlds, ReduceWritesTheRootsTensorOnly) {
  const int size = GetParam();
  on_ranks(size, [&](TorchComm& comm, int rank) {
    int root = 0;
    for_each_reduction([&](at::ScalarType dtype, RedOpType op) {
      root = (root + 1) % size;
      for (const bool async_op : {false, true}) {
        auto tensor = sample(rank, dtype, {3, 5});
        comm.reduce(tensor, root, op, async_op)->wait();
        if (rank == root)
          expect_reduced(tensor, reduced(op, size, dtype, {3, 5}), label(dtype, op));
        else
          EXPECT_TRUE(same_bits(tensor, sample(rank, dtype, {3, 5}))) << label(dtype, op);
      }
    });
  });
}

TEST_P(Worlds, ReduceScatterGivesEachRankItsSlot) {
  const int size = GetParam();
  on_ranks(size, [&](TorchComm& comm, int rank) {
    for_each_reduction([&](at::ScalarType dtype, RedOpType op) {
      for (const bool async_op : {false, true}) {
        Tensors input;
        for (int slot = 0; slot < size; ++slot)
          input.push_back(sample(rank + 7 * slot, dtype, {2, 3}));
        const auto want = reduced(op, size, dtype, {2, 3}, 7 * rank);
        auto output = at::empty_like(input[0]);
        comm.reduce_scatter(output, input, op, async_op)->wait();
        expect_reduced(output, want, label(dtype, op));
        auto single = at::empty_like(output);
        comm.reduce_scatter_single(single, at::cat(input), op, async_op)->wait();
        EXPECT_TRUE(same_bits(single, output)) << label(dtype, op);
      }
    });
  });
}

TEST(ReduceScatterV, HasSlotsOfAnySize) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    const auto count = [](int slot) { return int64_t{slot == 1 ? 0 : slot + 2}; };
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kUInt64, at::kComplexFloat})
      for (const bool async_op : {false, true}) {
        Tensors input;
        for (int slot = 0; slot < 3; ++slot)
          input.push_back(sample(rank + 7 * slot, dtype, {count(slot)}));
        auto output = at::empty({count(rank)}, input[0].options());
        comm.reduce_scatter_v(output, input, RedOpType::SUM, async_op)->wait();
        expect_reduced(output, reduced(RedOpType::SUM, 3, dtype, {count(rank)}, 7 * rank),
                       c10::toString(dtype));
      }
  });
}

TEST(ReduceScatterSingle, MayWorkInPlace) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    auto input = at::arange(4, at::kFloat) * (rank + 1);
    auto output = input.narrow(0, 2 * rank, 2);
    comm.reduce_scatter_single(output, input, RedOpType::SUM, false);
    EXPECT_TRUE(at::equal(output, at::arange(2 * rank, 2 * rank + 2, at::kFloat) * 3));
  });
}

TEST(PremulSum, MultipliesEachRanksInputByItsOwnFactor) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
      // 1 * 0.5 + 2 * 1.5 + 3 * 2.5
      const auto op = ReduceOp::make_nccl_premul_sum(rank + 0.5);
      auto tensor = at::full({4}, rank + 1.0).to(dtype);
      comm.all_reduce(tensor, op, false);
      expect_reduced(tensor, at::full({4}, 11.0).to(dtype), c10::toString(dtype));
      auto on_root = at::full({4}, rank + 1.0).to(dtype);
      comm.reduce(on_root, 2, op, true)->wait();
      expect_reduced(on_root, at::full({4}, rank == 2 ? 11.0 : rank + 1.0).to(dtype),
                     c10::toString(dtype));
      auto slot = at::empty({2}).to(dtype);
      const auto input = at::full({6}, rank + 1.0).to(dtype);
      comm.reduce_scatter_single(slot, input, op, false);
      expect_reduced(slot, at::full({2}, 11.0).to(dtype), c10::toString(dtype));
      EXPECT_TRUE(same_bits(input, at::full({6}, rank + 1.0).to(dtype)))
          << "inputs are not written";
    }
    auto whole = at::full({2}, rank + 1, at::kShort);
    comm.all_reduce(whole, ReduceOp::make_nccl_premul_sum(at::full({1}, rank + 1, at::kShort)),
                    false);
    EXPECT_EQ(whole[1].item<int>(), 14);
  });
}

TEST(HalfTypes, AreRoundedOnce) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    auto tensor = at::full({4}, rank == 0 ? 256.0 : 1.0).to(at::kBFloat16);
    comm.all_reduce(tensor, RedOpType::SUM, false);
    EXPECT_EQ(tensor[0].item<float>(), 258);
    auto big = at::full({70'000}, 60000.0).to(at::kHalf);
    comm.all_reduce(big, RedOpType::AVG, false);
    EXPECT_EQ(big[69'999].item<float>(), at::full({1}, 60000.0).to(at::kHalf).item<float>())
        << "no overflow on the way";
  });
}

TEST(Reductions, ThatAreNotDefinedAreRefusedBeforeAnythingIsSent) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    const auto refused = [&](at::Tensor tensor, const ReduceOp& op) {
      const auto error = error_of([&] { comm.all_reduce(tensor, op, false); });
      EXPECT_EQ(error.code(), Errc::kInvalidArgument) << error.what();
      EXPECT_EQ(error.context().op, "all_reduce");
      EXPECT_EQ(error.context().comm, "world");
    };
    refused(at::ones({2}), RedOpType::BXOR);
    refused(at::ones({2}, at::kComplexFloat), RedOpType::MAX);
    refused(at::ones({2}, at::kInt), ReduceOp::make_nccl_premul_sum(2.0));
    refused(at::ones({2}, at::kBool), ReduceOp::make_nccl_premul_sum(at::ones({1}, at::kBool)));
    refused(at::ones({4}), ReduceOp::make_nccl_premul_sum(at::ones({3})));
    auto fine = at::full({1}, rank + 1, at::kInt);
    comm.all_reduce(fine, RedOpType::SUM, false);
    EXPECT_EQ(fine.item<int>(), 3);
  });
}

TEST(Reductions, OfTensorsThatNeedGradientsOrWereMadeInInferenceMode) {
  on_ranks(2, [&](TorchComm& comm, int) {
    auto leaf = at::ones({3}, at::kBFloat16).set_requires_grad(true);
    comm.all_reduce(leaf, RedOpType::AVG, false);
    comm.all_reduce(leaf, RedOpType::AVG, true)->wait();
    EXPECT_EQ(leaf.detach()[0].item<float>(), 1);
    at::Tensor inference;
    {
      const c10::InferenceMode mode;
      inference = at::ones({3}, at::kShort);
    }
    comm.all_reduce(inference, RedOpType::SUM, false);
    EXPECT_EQ(inference[2].item<int>(), 2);
  });
}

TEST(Reductions, OfLargeTensors) {
  on_ranks(3, [&](TorchComm& comm, int) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kShort, at::kBool}) {
      auto tensor = at::ones({(1 << 20) + 1}).to(dtype);
      comm.all_reduce(tensor, RedOpType::SUM, false);
      EXPECT_TRUE((tensor.to(at::kInt) == (dtype == at::kBool ? 1 : 3)).all().item<bool>())
          << dtype;
    }
  });
}

}  // namespace
}  // namespace torch::comms
