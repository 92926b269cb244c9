// Backend ctran on devices of several hosts: ranks of this machine that say different names for
// their hosts, and the stand-in's kernels inside of each.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/ctran/stand_in_kernels.hpp"

namespace torch::comms::ctran_test {
namespace {

using nccl::error_of;
using nccl::Program;
using std::chrono::milliseconds;

// The host of each rank.
using Map = std::vector<std::string>;
const Map kTwoByTwo{"a", "a", "b", "b"}, kTwoByOne{"a", "b"}, kMixed{"a", "b", "a", "b"},
    kUneven{"a", "a", "b", "c"}, kThreeAndTwo{"a", "a", "a", "b", "b"};
const std::vector<Map> kMaps{kTwoByTwo, kTwoByOne, kMixed, kUneven, kThreeAndTwo};

class CtranAcrossHosts : public StandInKernels {
 protected:
  static void on_hosts(const Map& map, const std::function<void(Program&)>& body,
                       milliseconds timeout = std::chrono::seconds(60)) {
    on_ranks(static_cast<int>(map.size()), body, timeout,
             [&](int rank) { return Hints{{"ctran::host_id", map[static_cast<size_t>(rank)]}}; });
  }
  static bool takes(const Program& self, OpName op, const ReduceOp& reduction = ReduceOp::SUM,
                    at::ScalarType dtype = at::kFloat, const Hints& hints = {}) {
    return self.comm->getBackendImpl()->onDevice(at::kCPU, {op, &reduction, dtype, &hints}) !=
           nullptr;
  }
};

// Small whole numbers, so that every dtype has their sums.
at::Tensor numbers(int rank, int64_t count, at::ScalarType dtype) {
  return at::arange(count, at::kLong).add_(rank).remainder_(3).to(dtype);
}

std::string notes(const Program& self) {
  auto* const diagnostics = dynamic_cast<BackendDiagnostics*>(self.comm->getBackendImpl().get());
  return diagnostics == nullptr ? "" : diagnostics->describe_entries()["kernels"];
}

TEST_F(CtranAcrossHosts, SaysWhatItTakesAndWhatIsCopied) {
  on_hosts(kTwoByTwo, [](Program& self) {
    EXPECT_NE(notes(self).find("2 hosts of 2 + 2 ranks, 2 rails"), std::string::npos)
        << notes(self);
    EXPECT_TRUE(takes(self, OpName::all_reduce));
    EXPECT_TRUE(takes(self, OpName::all_gather_single));
    EXPECT_TRUE(takes(self, OpName::reduce_scatter_single));
    EXPECT_TRUE(takes(self, OpName::all_reduce, ReduceOp::AVG));
    EXPECT_FALSE(takes(self, OpName::all_reduce, ReduceOp::AVG, at::kInt));
    EXPECT_FALSE(takes(self, OpName::all_reduce, ReduceOp::BOR, at::kFloat));
    EXPECT_FALSE(takes(self, OpName::all_to_all_single));
    const Hints in_order{{"batch_invariant", "true"}};
    EXPECT_FALSE(takes(self, OpName::all_reduce, ReduceOp::SUM, at::kFloat, in_order));
    const auto links = self.comm->getBackendImpl()->links();
    EXPECT_NE(links[static_cast<size_t>(self.rank ^ 1)].find("kernels"), std::string::npos);
    EXPECT_EQ(links[static_cast<size_t>((self.rank + 2) % 4)], "tcp");
    self.comm->finalize();
  });
  on_hosts(kUneven, [](Program& self) {
    EXPECT_NE(notes(self).find("3 hosts of 2 + 1 + 1 ranks, 1 rail"), std::string::npos);
    EXPECT_TRUE(takes(self, OpName::all_reduce));
    EXPECT_TRUE(takes(self, OpName::broadcast));
    EXPECT_FALSE(takes(self, OpName::all_reduce, ReduceOp::AVG));
    EXPECT_FALSE(takes(self, OpName::all_gather_single));
    self.comm->finalize();
  });
}

TEST_F(CtranAcrossHosts, AllReduceIsTheSumOfAllInEveryDtypeAndSize) {
  for (const auto& map : kMaps)
    on_hosts(map, [&](Program& self) {
      const auto size = static_cast<int>(map.size());
      for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt,
                               at::kLong, at::kByte, at::kFloat8_e5m2})
        for (const int64_t count : {0, 1, 3, 1000, 40'001}) {
          auto tensor = numbers(self.rank, count, dtype);
          auto wanted = at::full({count}, 0, at::kLong);
          for (int rank = 0; rank < size; ++rank) wanted.add_(numbers(rank, count, at::kLong));
          self.comm->all_reduce(tensor, ReduceOp::SUM, false);
          self.synchronize();
          EXPECT_TRUE(tensor.to(at::kDouble).equal(wanted.to(dtype).to(at::kDouble)))
              << toString(dtype) << ", " << count << " elements, " << size << " ranks";
        }
      self.comm->finalize();
    });
}

TEST_F(CtranAcrossHosts, AllReduceGoesInChunks) {
  for (const auto& map : {kTwoByTwo, kTwoByOne, kUneven})
    on_hosts(map, [&](Program& self) {
      const int64_t count = 1'500'003;  // 6 MB: on one rail more chunks than are under way at once
      auto tensor = numbers(self.rank, count, at::kFloat);
      auto wanted = at::full({count}, 0, at::kFloat);
      for (int rank = 0; rank < static_cast<int>(map.size()); ++rank)
        wanted.add_(numbers(rank, count, at::kFloat));
      self.comm->all_reduce(tensor, ReduceOp::SUM, false);
      self.synchronize();
      EXPECT_TRUE(tensor.equal(wanted));
      self.comm->finalize();
    });
}

TEST_F(CtranAcrossHosts, OtherReductionsAreThoseOfAllRanks) {
  on_hosts(kTwoByTwo, [](Program& self) {
    struct Row {
      ReduceOp op;
      at::ScalarType dtype;
      int64_t wanted;
    };
    // Of 1, 2, 3 and 4; averages of integers go the other way, and agree.
    for (const auto& [op, dtype, wanted] :
         {Row{ReduceOp::MAX, at::kFloat, 4}, Row{ReduceOp::MIN, at::kShort, 1},
          Row{ReduceOp::PRODUCT, at::kDouble, 24}, Row{ReduceOp::BXOR, at::kInt, 4},
          Row{ReduceOp::AVG, at::kFloat, 2}, Row{ReduceOp::AVG, at::kInt, 2}}) {
      auto tensor = at::full({50'000}, self.rank + 1, dtype);
      self.comm->all_reduce(tensor, op, false);
      self.synchronize();
      EXPECT_EQ(tensor[49'999].to(at::kLong).item<int64_t>(), wanted);
    }
    self.comm->finalize();
  });
}

TEST_F(CtranAcrossHosts, FactorsAreCopiedThroughHostMemory) {
  on_hosts(kTwoByTwo, [](Program& self) {
    auto tensor = at::full({8}, 1.0);
    const auto op = ReduceOp::make_nccl_premul_sum(2.0);
    EXPECT_FALSE(takes(self, OpName::all_reduce, op));
    self.comm->all_reduce(tensor, op, false);
    EXPECT_EQ(tensor[7].item<float>(), 8);
    self.comm->finalize();
  });
}

TEST_F(CtranAcrossHosts, BroadcastComesFromAnyRank) {
  for (const auto& map : kMaps)
    on_hosts(map, [&](Program& self) {
      for (int root = 0; root < static_cast<int>(map.size()); ++root)
        for (const int64_t count : {0, 1, 1001, 2'000'003}) {
          auto tensor = at::full({count}, self.rank, at::kShort);
          if (self.rank == root) tensor = at::arange(count, at::kLong).to(at::kShort);
          self.comm->broadcast(tensor, root, false);
          self.synchronize();
          EXPECT_TRUE(tensor.equal(at::arange(count, at::kLong).to(at::kShort)))
              << count << " from " << root;
        }
      self.comm->finalize();
    });
}

TEST_F(CtranAcrossHosts, AllGatherHasEveryPartInItsPlace) {
  for (const auto& map : {kTwoByTwo, kTwoByOne, kMixed})
    on_hosts(map, [&](Program& self) {
      const auto size = static_cast<int64_t>(map.size());
      for (const int64_t count : {0, 1, 77, 700'001}) {
        const auto input = at::full({count}, self.rank + 1, at::kInt);
        auto output = at::full({size * count}, -1, at::kInt);
        self.comm->all_gather_single(output, input, false);
        self.synchronize();
        const auto wanted = at::arange(1, size + 1, at::kInt).repeat_interleave(count);
        EXPECT_TRUE(output.equal(wanted)) << count;
        // In place.
        auto again = at::full({size * count}, -1, at::kInt);
        auto own = again.slice(0, self.rank * count, (self.rank + 1) * count).fill_(self.rank + 1);
        self.comm->all_gather_single(again, own, false);
        self.synchronize();
        EXPECT_TRUE(again.equal(wanted)) << count;
      }
      self.comm->finalize();
    });
}

TEST_F(CtranAcrossHosts, ReduceScatterHasTheSumsOfItsPart) {
  for (const auto& map : {kTwoByTwo, kTwoByOne, kMixed})
    on_hosts(map, [&](Program& self) {
      const auto size = static_cast<int64_t>(map.size());
      for (const int64_t count : {0, 1, 77, 700'001}) {
        const auto parts = at::arange(size, at::kFloat).repeat_interleave(count);
        const auto input = parts.mul(10).add_(self.rank);
        auto output = at::full({count}, -1, at::kFloat);
        self.comm->reduce_scatter_single(output, input, ReduceOp::SUM, false);
        self.synchronize();
        const auto wanted = static_cast<double>(size * (10 * self.rank) + size * (size - 1) / 2);
        EXPECT_TRUE(output.equal(at::full({count}, wanted, at::kFloat))) << count;
      }
      self.comm->finalize();
    });
}

TEST_F(CtranAcrossHosts, OperationsAreInTheOrderOfTheStreamAndTheHostGoesOn) {
  on_hosts(kTwoByTwo, [](Program& self) {
    auto tensor = at::full({4}, 0.0);
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { tensor.fill_(2); });
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->barrier(false);
    EXPECT_EQ(tensor[0].item<float>(), 0);
    gate->set_value();
    self.synchronize();
    EXPECT_EQ(tensor[0].item<float>(), 8);
    self.comm->finalize();
  });
}

TEST_F(CtranAcrossHosts, TheyAreCapturedAndReplayed) {
  for (const auto& map : {kTwoByTwo, kTwoByOne, kUneven})
    on_hosts(map, [&](Program& self) {
      const auto size = static_cast<double>(map.size());
      auto small = at::full({4}, 1.0), large = at::full({300'001}, 1.0);
      gpu::cpu_begin_capture(self.stream);
      self.comm->all_reduce(small, ReduceOp::SUM, false);
      self.comm->all_reduce(large, ReduceOp::SUM, false);
      const auto graph = gpu::cpu_end_capture(self.stream);
      constexpr int kReplays = 4;
      for (int replay = 0; replay < kReplays; ++replay) gpu::cpu_launch_graph(graph, self.stream);
      // Beside operations that are in none.
      self.comm->all_reduce(small, ReduceOp::SUM, false);
      gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
      EXPECT_EQ(small[3].item<double>(), std::pow(size, kReplays + 2));
      EXPECT_EQ(large[300'000].item<double>(), std::pow(size, kReplays + 1));
      self.comm->finalize();
    });
}

TEST_F(CtranAcrossHosts, ASplitHasRailsOfItsOwn) {
  on_hosts(kTwoByTwo, [](Program& self) {
    const std::vector<int> ranks =
        self.rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    const auto child = self.comm->split(ranks, "half");
    auto tensor = at::full({100}, static_cast<double>(self.rank));
    child->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(tensor[99].item<double>(), self.rank % 2 == 0 ? 2 : 4);
    child->finalize();
    self.comm->finalize();
  });
}

TEST_F(CtranAcrossHosts, AMissingHostIsATimeoutThatEndsTheCommunicator) {
  std::promise<void> over;
  on_hosts(kTwoByOne, [&, is_over = over.get_future().share()](Program& self) {
    if (self.rank == 1) {
      is_over.wait();
      return self.comm->abort();
    }
    AllReduceOptions options;
    options.timeout = milliseconds(200);
    auto tensor = at::full({1000}, 1.0);
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().op, "all_reduce");
    EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).code(), Errc::kTimeout);
    over.set_value();
  });
}

TEST_F(CtranAcrossHosts, AReplayHasItsLimitAndLeavesNaN) {
  std::promise<void> over;
  on_hosts(kTwoByOne, [&, is_over = over.get_future().share()](Program& self) {
    AllReduceOptions options;
    options.timeout = milliseconds(200);
    auto tensor = at::full({1000}, 1.0);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false, options);
    const auto graph = gpu::cpu_end_capture(self.stream);
    if (self.rank == 1) {
      is_over.wait();
      return self.comm->abort();
    }
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_TRUE(std::isnan(tensor[999].item<double>()));
    const auto error = error_of([&] { self.comm->barrier(false); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    over.set_value();
  });
}

TEST_F(CtranAcrossHosts, APeerOnAnotherHostThatGivesUpEndsWhatWaitsForItAndIsNamed) {
  std::promise<void> launched;
  std::atomic<int> count{0};
  on_hosts(kTwoByTwo, [&, are_launched = launched.get_future().share()](Program& self) {
    if (self.rank == 3) {
      are_launched.wait();
      return self.comm->abort();
    }
    auto tensor = at::full({100'000}, 1.0);
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    if (++count == 3) launched.set_value();
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().op, "all_reduce");
    EXPECT_TRUE(error.context().peer >= 0 && error.context().peer != self.rank) << error.what();
    EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
  });
}

TEST_F(CtranAcrossHosts, InAReplayTooThePeerThatGaveUpIsNamed) {
  std::promise<void> replayed;
  on_hosts(kTwoByOne, [&, is_replayed = replayed.get_future().share()](Program& self) {
    auto tensor = at::full({1000}, 1.0);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    if (self.rank == 1) {
      is_replayed.wait();
      return self.comm->abort();
    }
    gpu::cpu_launch_graph(graph, self.stream);
    replayed.set_value();
    self.synchronize();
    const auto error = error_of([&] { self.comm->barrier(false); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().peer, 1);
    EXPECT_TRUE(std::isnan(tensor[999].item<double>()));
  });
}

TEST_F(CtranAcrossHosts, AnAbortEndsBothParts) {
  on_hosts(kTwoByTwo, [](Program& self) {
    if (self.rank != 0) {
      // Rank 0 has nobody: not on its host, not on its rail.
      EXPECT_EQ(error_of([&] {
                  auto tensor = at::full({4}, 1.0);
                  RecvOptions options;
                  options.timeout = std::chrono::seconds(30);
                  self.comm->recv(tensor, 0, false, options);
                }).code(),
                Errc::kPeerFailed);
      return;
    }
    auto tensor = at::full({100'000}, 1.0);
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    self.comm->abort();
    EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kAborted);
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).code(), Errc::kAborted);
  });
}

// Whoever has all that it needs may be through before the other one says so.
TEST_F(CtranAcrossHosts, DifferentCountsAreAMismatchAtTheNextOperationAtTheLatest) {
  on_hosts(kTwoByOne, [](Program& self) {
    auto tensor = at::full({100 + self.rank}, 1.0);
    const auto error = error_of([&] {
      self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
      self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    });
    EXPECT_TRUE(error.code() == Errc::kMismatch || error.code() == Errc::kPeerFailed)
        << error.what();
  });
}

}  // namespace
}  // namespace torch::comms::ctran_test
