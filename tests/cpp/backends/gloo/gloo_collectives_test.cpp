// The operations that move data, on ranks that are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <tuple>

#include <ATen/ATen.h>

#include "backends/gloo/samples.hpp"
#include "backends/gloo/world.hpp"

namespace torch::comms {
namespace {

using gloo_test::on_ranks;
using gloo_test::same_bits;
using gloo_test::sample;
using Tensors = std::vector<at::Tensor>;

// One of each width, and those that torch itself can do little with.
const std::vector<at::ScalarType> kDtypes{at::kByte,          at::kBool,         at::kBFloat16,
                                          at::kShort,         at::kUInt32,       at::kDouble,
                                          at::kComplexDouble, at::kFloat8_e4m3fn};

// Runs the operation both ways: `issue(async_op)`, checked by `check` after each.
template <class Issue, class Check>
void both_ways(const Issue& issue, const Check& check) {
  issue(false)->wait();
  check();
  issue(true)->wait();
  check();
}

Tensors empty_slots(int size, const at::Tensor& like) {
  Tensors slots;
  for (int i = 0; i < size; ++i) slots.push_back(at::empty_like(like));
  return slots;
}

// A contiguous view into the middle of other memory.
at::Tensor inside(const at::Tensor& tensor) {
  auto big = at::zeros({tensor.numel() + 6}, tensor.options());
  auto view = big.narrow(0, 3, tensor.numel()).view(tensor.sizes());
  view.copy_(tensor);
  return view;
}

class Shapes : public ::testing::TestWithParam<std::tuple<int, std::vector<int64_t>>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  const std::vector<int64_t>& shape() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Gloo, Shapes,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(std::vector<int64_t>{0},
                                                              std::vector<int64_t>{7},
                                                              std::vector<int64_t>{3, 2, 5})));

TEST_P(Shapes, BroadcastGivesTheRootsTensor) {
  on_ranks(size(), [&](TorchComm& comm, int rank) {
    for (const auto dtype : kDtypes)
      for (int root = 0; root < size(); ++root) {
        at::Tensor tensor;
        both_ways(
            [&](bool async_op) {
              tensor = inside(sample(rank, dtype, shape()));
              return comm.broadcast(tensor, root, async_op);
            },
            [&] { EXPECT_TRUE(same_bits(tensor, sample(root, dtype, shape()))) << dtype; });
      }
  });
}

TEST_P(Shapes, AllGatherGivesEveryRanksTensorInRankOrder) {
  on_ranks(size(), [&](TorchComm& comm, int rank) {
    for (const auto dtype : kDtypes) {
      const auto input = inside(sample(rank, dtype, shape()));
      Tensors list;
      auto single = at::empty({size() * input.numel()}, input.options());
      const auto check_list = [&] {
        for (int i = 0; i < size(); ++i)
          EXPECT_TRUE(same_bits(list[i], sample(i, dtype, shape()))) << dtype;
      };
      both_ways(
          [&](bool async_op) {
            list = empty_slots(size(), input);
            return comm.all_gather(list, input, async_op);
          },
          check_list);
      both_ways(
          [&](bool async_op) {
            single.zero_();
            return comm.all_gather_single(single, input, async_op);
          },
          [&] { EXPECT_TRUE(same_bits(single, at::cat(list).flatten())) << dtype; });
    }
  });
}

TEST_P(Shapes, ScatterAndGatherMoveTheRootsList) {
  on_ranks(size(), [&](TorchComm& comm, int rank) {
    for (const auto dtype : kDtypes)
      for (int root = 0; root < size(); ++root) {
        Tensors list;
        for (int i = 0; i < size() && rank == root; ++i)
          list.push_back(sample(10 + i, dtype, shape()));
        auto output = inside(sample(0, dtype, shape()));
        both_ways(
            [&](bool async_op) {
              output.zero_();
              return comm.scatter(output, list, root, async_op);
            },
            [&] { EXPECT_TRUE(same_bits(output, sample(10 + rank, dtype, shape()))) << dtype; });

        Tensors gathered;
        auto single = at::empty({size() * output.numel()}, output.options());
        both_ways(
            [&](bool async_op) {
              gathered = empty_slots(size(), output);
              return comm.gather(rank == root ? gathered : Tensors{}, output, root, async_op);
            },
            [&] {
              for (int i = 0; i < size() && rank == root; ++i)
                EXPECT_TRUE(same_bits(gathered[i], sample(10 + i, dtype, shape()))) << dtype;
            });
        both_ways([&](bool async_op) { return comm.gather_single(single, output, root, async_op); },
                  [&] {
                    if (rank != root) return;
                    EXPECT_TRUE(same_bits(single, at::cat(gathered).flatten())) << dtype;
                  });
      }
  });
}

TEST_P(Shapes, AllToAllSwapsSlots) {
  on_ranks(size(), [&](TorchComm& comm, int rank) {
    for (const auto dtype : kDtypes) {
      Tensors input, output;
      for (int i = 0; i < size(); ++i) input.push_back(sample(100 * rank + i, dtype, shape()));
      const auto flat = at::cat(input).flatten();
      auto single = at::empty_like(flat);
      both_ways(
          [&](bool async_op) {
            output = empty_slots(size(), input[0]);
            return comm.all_to_all(output, input, async_op);
          },
          [&] {
            for (int i = 0; i < size(); ++i)
              EXPECT_TRUE(same_bits(output[i], sample(100 * i + rank, dtype, shape()))) << dtype;
          });
      both_ways([&](bool async_op) { return comm.all_to_all_single(single, flat, async_op); },
                [&] { EXPECT_TRUE(same_bits(single, at::cat(output).flatten())) << dtype; });
    }
  });
}

// Sizes that differ by rank and peer; rank 1 has nothing for anybody.
int64_t rows_between(int from, int to) { return from == 1 ? 0 : from + 2 * to; }

TEST(Uneven, AllToAllListsMatchPairByPair) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    Tensors input, output;
    for (int i = 0; i < 3; ++i) {
      input.push_back(sample(10 * rank + i, at::kShort, {rows_between(rank, i), 2}));
      output.push_back(at::empty({rows_between(i, rank), 2}, at::kShort));
    }
    both_ways([&](bool async_op) { return comm.all_to_all(output, input, async_op); },
              [&] {
                for (int i = 0; i < 3; ++i)
                  EXPECT_TRUE(same_bits(
                      output[i], sample(10 * i + rank, at::kShort, {rows_between(i, rank), 2})));
              });
  });
}

TEST(Uneven, AllToAllMayWorkInPlace) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    auto tensor = at::full({4}, rank, at::kInt);
    const Tensors halves{tensor.narrow(0, 0, 2), tensor.narrow(0, 2, 2)};
    comm.all_to_all(halves, halves, false);
    EXPECT_TRUE(at::equal(tensor, at::tensor({0, 0, 1, 1}, at::kInt)));
    comm.all_to_all_single(tensor, tensor, false);
    EXPECT_TRUE(at::equal(tensor, at::tensor({rank, rank, rank, rank}, at::kInt)));
  });
}

TEST(Uneven, AllToAllVSingleCountsRowsAndLeavesTheRest) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    std::vector<uint64_t> in_splits, out_splits;
    uint64_t in_rows = 0, out_rows = 0;
    for (int i = 0; i < 3; ++i) {
      in_splits.push_back(static_cast<uint64_t>(rows_between(rank, i)));
      out_splits.push_back(static_cast<uint64_t>(rows_between(i, rank)));
      in_rows += in_splits.back();
      out_rows += out_splits.back();
    }
    // Row r for rank i is rank * 1000 + i * 100 + r; one row more than is used on each side.
    auto input = at::full({static_cast<int64_t>(in_rows) + 1, 2, 2}, -1, at::kLong);
    int64_t row = 0;
    for (int i = 0; i < 3; ++i)
      for (uint64_t r = 0; r < in_splits[i]; ++r)
        input[row++].fill_(rank * 1000 + i * 100 + static_cast<int64_t>(r));
    auto output = at::full({static_cast<int64_t>(out_rows) + 1, 2, 2}, -2, at::kLong);
    both_ways(
        [&](bool async_op) {
          output.fill_(-2);
          return comm.all_to_all_v_single(output, input, out_splits, in_splits, async_op);
        },
        [&] {
          int64_t at = 0;
          for (int i = 0; i < 3; ++i)
            for (uint64_t r = 0; r < out_splits[i]; ++r, ++at)
              EXPECT_TRUE((output[at] == i * 1000 + rank * 100 + static_cast<int64_t>(r))
                              .all()
                              .item<bool>());
          EXPECT_TRUE((output[at] == -2).all().item<bool>());
        });
  });
}

TEST(Uneven, AllGatherVHasSlotsOfAnySize) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    // Both ways of doing it: one exchange for few bytes, a broadcast a rank for many.
    for (const int64_t unit : {1, 60'000}) {
      const auto count = [&](int r) { return r == 1 ? 0 : unit * (r + 1); };
      const auto input = sample(rank, at::kInt, {count(rank)});
      Tensors output;
      for (int i = 0; i < 3; ++i) output.push_back(at::empty({count(i)}, at::kInt));
      const auto check = [&] {
        for (int i = 0; i < 3; ++i)
          EXPECT_TRUE(same_bits(output[i], sample(i, at::kInt, {count(i)})));
      };
      both_ways([&](bool async_op) { return comm.all_gather_v(output, input, async_op); }, check);
      const auto whole = at::empty({count(0) + count(1) + count(2)}, at::kInt);
      output = whole.split_with_sizes({count(0), count(1), count(2)});
      both_ways([&](bool async_op) { return comm.all_gather_v(output, input, async_op); }, check);
    }
  });
}

TEST(Barrier, NobodyLeavesBeforeTheLastCame) {
  std::atomic<int> came{0};
  on_ranks(3, [&](TorchComm& comm, int) {
    for (int round = 1; round <= 5; ++round) {
      came.fetch_add(1);
      comm.barrier(round % 2 == 0)->wait();
      EXPECT_GE(came.load(), 3 * round);
      comm.barrier(false);
    }
  });
}

TEST(Tensors, ThatHoldNoPlainMemoryAreRefusedBeforeAnythingIsSent) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    auto lazy = at::ones({4}, at::kComplexFloat).conj();
    const auto error = gloo_test::error_of([&] { comm.broadcast(lazy, 0, false); });
    EXPECT_EQ(error.code(), Errc::kInvalidArgument);
    EXPECT_EQ(error.context().op, "broadcast");
    EXPECT_EQ(error.context().rank, rank);
    auto fine = at::full({1}, rank, at::kInt);
    comm.broadcast(fine, 1, false);
    EXPECT_EQ(fine.item<int>(), 1);
  });
}

TEST(Async, WorksOverlapAndCompleteWithoutAWait) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    Tensors tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(at::full({100}, rank * 100 + i, at::kInt));
      works.push_back(comm.broadcast(tensors.back(), i % 2, true));
    }
    while (!std::all_of(works.begin(), works.end(), [](auto& work) { return work->isCompleted(); }))
      std::this_thread::yield();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(tensors[i][99].item<int>(), i % 2 * 100 + i);
    EXPECT_THROW(works[0]->waitBlocking(), CommError)
        << "as the contract has it for asynchronous works";
    works[0]->wait();
    works[0]->wait();
    EXPECT_NO_THROW(comm.barrier(false)->waitBlocking());
  });
}

TEST(Async, ADroppedWorkStillFinishes) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    std::vector<at::Tensor> slots{at::zeros({2, 3}), at::zeros({2, 3})};
    comm.all_gather(slots, at::full({2, 3}, rank + 1.0), true).reset();
    comm.barrier(false);
    comm.barrier(false);
    EXPECT_EQ(slots[1 - rank][1][2].item<float>(), 2 - rank);
  });
}

}  // namespace
}  // namespace torch::comms
