// Operations that read their sizes, or their chance, on the device.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "backends/ncclx/world.hpp"

namespace torch::comms::ncclx {
namespace {

using Counts = std::vector<int64_t>;

at::Tensor counts_of(const Counts& counts) { return at::tensor(counts, at::kLong); }
at::Tensor seed_of(int64_t seed) { return at::full({1}, seed, at::kLong); }

// What two ranks exchange: rank r sends `sends[r]`, elements that count up from 100 r.
struct Both {
  Counts sends[2];
  at::Tensor sent(int rank) const { return counts_of(sends[rank]); }
  at::Tensor received(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return counts_of({sends[0][r], sends[1][r]});
  }
  Counts wanted(int rank, int64_t elements) const {
    Counts all;
    for (int source = 0; source < 2; ++source) {
      const int64_t before = rank == 0 ? 0 : sends[source][0];
      for (int64_t i = 0; i < sends[source][static_cast<size_t>(rank)]; ++i)
        all.push_back(100 * source + before + i);
    }
    all.resize(static_cast<size_t>(elements), -1);
    return all;
  }
};
Counts values_of(const at::Tensor& tensor) {
  const auto* begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}
at::Tensor input_of(int rank) { return at::arange(100 * rank, 100 * rank + 20, at::kLong); }
at::Tensor untouched() { return at::full({20}, -1, at::kLong); }

class NcclxDeviceCalls : public NcclxTest {};

TEST_F(NcclxDeviceCalls, CountsAreReadWhenTheOperationRuns) {
  on_ranks(2, [](Program& self) {
    const Both first{{{3, 0}, {0, 4}}}, second{{{1, 9}, {7, 2}}};
    auto output = untouched();
    const auto sent = first.sent(self.rank), received = first.received(self.rank);
    const auto gate = self.close_gate();
    const auto work =
        backend_of(self).device_alltoallv_single(output, input_of(self.rank), received, sent, true);
    // Nobody has looked at them.
    std::memcpy(sent.data_ptr(), second.sent(self.rank).data_ptr(), 16);
    std::memcpy(received.data_ptr(), second.received(self.rank).data_ptr(), 16);
    gate->set_value();
    work->hostSynchronize();
    EXPECT_EQ(values_of(output), second.wanted(self.rank, 20));
    EXPECT_EQ(launches_of(self), 1);
    self.comm->finalize();
  });
}

TEST_F(NcclxDeviceCalls, EachReplayHasItsOwnCounts) {
  on_ranks(2, [](Program& self) {
    self.comm->barrier(false);
    auto output = untouched();
    const auto input = input_of(self.rank);
    const auto sent = counts_of({0, 0}), received = counts_of({0, 0});
    gpu::cpu_begin_capture(self.stream);
    backend_of(self).device_alltoallv_single(output, input, received, sent, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    for (const Both& both : {Both{{{3, 0}, {0, 4}}}, Both{{{1, 9}, {7, 2}}}, Both{{{0, 0}, {0, 0}}},
                             Both{{{20, 0}, {0, 20}}}}) {
      output.fill_(-1);
      std::memcpy(sent.data_ptr(), both.sent(self.rank).data_ptr(), 16);
      std::memcpy(received.data_ptr(), both.received(self.rank).data_ptr(), 16);
      gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
      EXPECT_EQ(values_of(output), both.wanted(self.rank, 20));
    }
    self.comm->finalize();
  });
}

TEST_F(NcclxDeviceCalls, InputThatIsOutputIsReadFirst) {
  on_ranks(2, [](Program& self) {
    const Both both{{{5, 5}, {5, 5}}};
    auto tensor = input_of(self.rank);
    backend_of(self)
        .device_alltoallv_single(tensor, tensor, both.received(self.rank), both.sent(self.rank),
                                 true)
        ->hostSynchronize();
    auto wanted = both.wanted(self.rank, 10);
    auto got = values_of(tensor);
    got.resize(10);
    EXPECT_EQ(got, wanted);
    self.comm->finalize();
  });
}

// One rank's counts are impossible: the error is of that call here, and of the others' too.
TEST_F(NcclxDeviceCalls, ImpossibleCountsEndTheCommunicatorAndChangeNothing) {
  for (const Counts& invalid : {Counts{-1, 2}, Counts{5, 16}, Counts{INT64_MAX, 1}})
    on_ranks(2, [&](Program& self) {
      auto output = untouched();
      const auto good = counts_of({2, 2});
      const auto sent = self.rank == 1 ? counts_of(invalid) : good;
      // A rank that comes late hears of it in its call.
      const auto error = error_of([&] {
        backend_of(self)
            .device_alltoallv_single(output, input_of(self.rank), good, sent, true)
            ->hostSynchronize();
      });
      EXPECT_EQ(error.code(), self.rank == 1 ? Errc::kInvalidArgument : Errc::kMismatch);
      EXPECT_EQ(error.context().op, "device_alltoallv_single");
      EXPECT_EQ(error.context().peer, 1);
      // Rank 0 finds it in its kernel, or rank 1 reports it first.
      EXPECT_NE(error.why().find("counts of rank 1 are invalid"), std::string::npos) << error.why();
      EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
      if (self.rank == 1) {
        EXPECT_EQ(values_of(output), Counts(20, -1));
      }
    });
}

TEST_F(NcclxDeviceCalls, WrongTensorsAreRefusedBeforeAnythingIsSent) {
  on_ranks(2, [](Program& self) {
    auto& backend = backend_of(self);
    auto output = untouched();
    const auto input = input_of(self.rank), good = counts_of({1, 1});
    const auto why = [&](auto change) {
      auto into = output;
      auto from = input, received = good, sent = good;
      change(into, from, received, sent);
      const auto error =
          error_of([&] { backend.device_alltoallv_single(into, from, received, sent, false); });
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
      EXPECT_EQ(error.context().op, "device_alltoallv_single");
      return error.why();
    };
    EXPECT_EQ(why([](auto&, auto&, auto&, auto& sent) { sent = sent.to(at::kInt); }),
              "input_split_sizes has dtype int32, expected int64");
    EXPECT_EQ(why([](auto&, auto&, auto& received, auto&) { received = counts_of({1, 1, 1}); }),
              "output_split_sizes has 3 elements, expected 2 (a size for each rank)");
    EXPECT_EQ(why([](auto&, auto& from, auto&, auto&) { from = from.to(at::kFloat); }),
              "input has dtype float32, expected int64");
    EXPECT_EQ(
        why([](auto& into, auto&, auto&, auto&) { into = at::zeros({4, 4}).t(); }),
        "output is not contiguous; pass a contiguous copy, and for an output copy the result back");
    EXPECT_EQ(why([](auto&, auto&, auto& received, auto&) { received = at::Tensor(); }),
              "output_split_sizes is an undefined tensor");
    EXPECT_EQ(launches_of(self), 0);
    backend.device_alltoallv_single(output, input, good, good, false);
    EXPECT_EQ(launches_of(self), 1);
    self.comm->finalize();
  });
}

TEST_F(NcclxDeviceCalls, OneRankAloneCopiesWhatBothHave) {
  on_ranks(1, [](Program& self) {
    auto& backend = backend_of(self);
    const auto input = input_of(0);
    for (const auto dtype : {at::kLong, at::kFloat, at::kHalf, at::kChar, at::kComplexDouble})
      for (const auto& [sent, received, copied] :
           {std::array<int64_t, 3>{7, 7, 7}, {0, 0, 0}, {30, 30, 20}, {3, 9, 3}, {-1, 4, 0}}) {
        auto output = untouched().to(dtype);
        backend
            .device_alltoallv_single(output, input.to(dtype), counts_of({received}),
                                     counts_of({sent}), true)
            ->hostSynchronize();
        auto wanted = untouched().to(dtype);
        wanted.narrow(0, 0, copied).copy_(input.narrow(0, 0, copied));
        EXPECT_TRUE(at::equal(output, wanted));
      }
    auto sum = at::zeros({20});
    backend.reduce_scatter_quantized(sum, input.to(at::kFloat), ReduceOp::AVG, seed_of(1), false);
    EXPECT_TRUE(at::equal(sum, input.to(at::kFloat)));  // nothing was sent, nothing is rounded
    self.comm->finalize();
  });
}

TEST_F(NcclxDeviceCalls, WithoutKernelsTheErrorSaysWhyThereAreNone) {
  ::setenv(kKernels, "/no/such/library.so", 1);
  on_ranks(2, [](Program& self) {
    auto output = untouched();
    const auto good = counts_of({1, 1});
    const auto error = error_of(
        [&] { backend_of(self).device_alltoallv_single(output, input_of(0), good, good, false); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_NE(error.why().find("needs kernels over mapped memory"), std::string::npos)
        << error.why();
    EXPECT_NE(error.why().find("/no/such/library.so"), std::string::npos) << error.why();
    auto sum = at::zeros({2});
    EXPECT_EQ(error_of([&] {
                backend_of(self).reduce_scatter_quantized(sum, at::zeros({4}), ReduceOp::SUM,
                                                          seed_of(1), false);
              }).why(),
              error.why());
    self.comm->barrier(false);  // it goes on without them
    self.comm->finalize();
  });
}

at::Tensor uneven(int rank, int64_t count) {
  return at::arange(count).to(at::kFloat).add(1).mul(0.1 * (rank + 1));
}

TEST_F(NcclxDeviceCalls, QuantizedSumsAreTheSameForTheSameSeedAndNearTheSum) {
  on_ranks(3, [](Program& self) {
    constexpr int64_t kCount = 1001;
    const auto input = uneven(self.rank, 3 * kCount);
    const auto sum_with = [&](int64_t seed, const ReduceOp& op) {
      auto output = at::empty({kCount});
      backend_of(self)
          .reduce_scatter_quantized(output, input, op, seed_of(seed), true)
          ->hostSynchronize();
      return output;
    };
    const auto once = sum_with(7, ReduceOp::SUM);
    EXPECT_TRUE(at::equal(once, sum_with(7, ReduceOp::SUM)));
    EXPECT_FALSE(at::equal(once, sum_with(8, ReduceOp::SUM)));
    EXPECT_TRUE(at::equal(once.div(3), sum_with(7, ReduceOp::AVG)));
    auto plain = at::empty({kCount});
    self.comm->reduce_scatter_single(plain, input, ReduceOp::SUM, true)->hostSynchronize();
    // Each of two roundings is off by less than a distance of bfloat16, 2^-7 of the value at most.
    const auto* near = plain.const_data_ptr<float>();
    const auto* got = once.const_data_ptr<float>();
    for (int64_t i = 0; i < kCount; ++i) ASSERT_LE(std::fabs(got[i] - near[i]), near[i] / 128);
    EXPECT_FALSE(at::equal(once, plain));
    self.comm->finalize();
  });
}

TEST_F(NcclxDeviceCalls, QuantizedSumsMayBeInPlaceAndOfReplays) {
  on_ranks(2, [](Program& self) {
    self.comm->barrier(false);
    const auto input = uneven(self.rank, 200);
    const auto seed = seed_of(0);
    auto output = at::empty({100});
    gpu::cpu_begin_capture(self.stream);
    backend_of(self).reduce_scatter_quantized(output, input, ReduceOp::SUM, seed, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    for (const int64_t now : {3, 4}) {
      *seed.data_ptr<int64_t>() = now;
      gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
      auto whole = input.clone();
      auto part = whole.narrow(0, 100 * self.rank, 100);
      backend_of(self).reduce_scatter_quantized(part, whole, ReduceOp::SUM, seed, false);
      self.synchronize();
      EXPECT_TRUE(at::equal(part, output));
      auto first = whole.narrow(0, 50, 100);  // overlaps otherwise
      whole.copy_(input);
      backend_of(self)
          .reduce_scatter_quantized(first, whole, ReduceOp::SUM, seed, true)
          ->hostSynchronize();
      EXPECT_TRUE(at::equal(first, output));
    }
    self.comm->finalize();
  });
}

TEST_F(NcclxDeviceCalls, QuantizedSumsAreOfTheirKindAlone) {
  on_ranks(2, [](Program& self) {
    const auto why = [&](at::Tensor output, const at::Tensor& input, const ReduceOp& op,
                         const at::Tensor& seed) {
      const auto error = error_of(
          [&] { backend_of(self).reduce_scatter_quantized(output, input, op, seed, false); });
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
      EXPECT_EQ(error.context().op, "reduce_scatter_quantized");
      return error.why();
    };
    const auto two = at::zeros({2}), four = at::zeros({4}), seed = seed_of(1);
    const ReduceOp sum = ReduceOp::SUM;
    EXPECT_EQ(why(two, four, ReduceOp::MAX, seed), "op is MAX, expected SUM or AVG");
    EXPECT_EQ(why(two.to(at::kDouble), four, sum, seed),
              "output has dtype float64, expected float32");
    EXPECT_EQ(why(two, four.to(at::kHalf), sum, seed), "input has dtype float16, expected float32");
    EXPECT_EQ(why(two, at::zeros({5}), sum, seed),
              "input has 5 elements, expected 4 (ranks times output)");
    EXPECT_EQ(why(two, four, sum, at::zeros({1})), "seed has dtype float32, expected int64");
    EXPECT_EQ(why(two, four, sum, counts_of({1, 2})), "seed has 2 elements, expected 1 (a seed)");
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::ncclx
