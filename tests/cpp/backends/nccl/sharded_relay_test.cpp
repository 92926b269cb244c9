// Transfers through relay ranks, in memory and on streams.
#include "backends/nccl/api/sharded_relay.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "backends/nccl/api/rcclx_backend.hpp"
#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

using relay::RelayTransfer;
using Buffers = std::map<int, std::vector<int64_t>>;

// Moves elements through their relay ranks, and counts those that each rank has relayed.
void run_transfers(const std::vector<RelayTransfer>& transfers, int size, const Buffers& input,
                   Buffers& output, std::map<int, int64_t>& relayed) {
  for (const auto& transfer : transfers)
    for (int relay_rank = 0; relay_rank < size; ++relay_rank) {
      const auto shard = relay::shard_of(transfer, relay_rank, size);
      for (int64_t i = shard.begin; i < shard.begin + shard.count; ++i) {
        int64_t sum = 0;
        for (const int source : transfer.sources)
          sum += input.at(source).at(static_cast<size_t>(transfer.input_offset + i));
        for (const auto& [rank, offset] : transfer.destinations)
          output[rank].at(static_cast<size_t>(offset + i)) += sum;
        if (!transfer.is_local()) ++relayed[relay_rank];
      }
    }
}

struct Case {
  const char* name;
  std::vector<RelayTransfer> (*plan)(const std::vector<int>&, int64_t);
  bool input_of_all, output_of_all;  // the count for every rank of the group
  // Of the group's i-th rank, element e; `input(j, e)` is of the j-th.
  int64_t (*expected)(size_t i, int64_t e, int64_t count, size_t ranks,
                      const std::function<int64_t(size_t, int64_t)>& input);
};
const Case kCases[] = {
    {"all_reduce", relay::all_reduce, false, false,
     [](size_t, int64_t e, int64_t, size_t ranks, const auto& input) {
       int64_t sum = 0;
       for (size_t j = 0; j < ranks; ++j) sum += input(j, e);
       return sum;
     }},
    {"reduce_scatter", relay::reduce_scatter, true, false,
     [](size_t i, int64_t e, int64_t count, size_t ranks, const auto& input) {
       int64_t sum = 0;
       for (size_t j = 0; j < ranks; ++j) sum += input(j, static_cast<int64_t>(i) * count + e);
       return sum;
     }},
    {"all_to_all", relay::all_to_all, true, true,
     [](size_t i, int64_t e, int64_t count, size_t, const auto& input) {
       return input(static_cast<size_t>(e / count), static_cast<int64_t>(i) * count + e % count);
     }},
    {"all_gather", relay::all_gather, false, true,
     [](size_t, int64_t e, int64_t count, size_t, const auto& input) {
       return input(static_cast<size_t>(e / count), e % count);
     }},
};

TEST(ShardedRelay, EveryElementArrivesOnceByWayOfAllRanks) {
  const std::vector<int> groups[] = {{0}, {2, 0}, {1, 3, 4}, {4, 3, 2, 1, 0}};
  constexpr int kSize = 5;
  const auto value = [](int rank, int64_t e) { return 1000 * rank + e * e; };
  for (const auto& [name, plan, input_of_all, output_of_all, expected] : kCases)
    for (const auto& ranks : groups)
      for (const int64_t count : {0, 1, 4, 5, 23}) {
        const auto count_of = [&](bool of_all) {
          return static_cast<size_t>(count) * (of_all ? ranks.size() : 1);
        };
        Buffers input, output;
        for (const int rank : ranks) {
          for (size_t e = 0; e < count_of(input_of_all); ++e)
            input[rank].push_back(value(rank, static_cast<int64_t>(e)));
          output[rank].resize(count_of(output_of_all));
        }
        std::map<int, int64_t> relayed;
        run_transfers(plan(ranks, count), kSize, input, output, relayed);
        for (size_t i = 0; i < ranks.size(); ++i)
          for (size_t e = 0; e < count_of(output_of_all); ++e)
            EXPECT_EQ(output[ranks[i]][e],
                      expected(i, static_cast<int64_t>(e), count, ranks.size(),
                               [&](size_t j, int64_t at) { return value(ranks[j], at); }))
                << name << ", " << ranks.size() << " ranks, " << count << " elements";
        if (ranks.size() < 2) continue;
        for (int rank = 0; rank < kSize; ++rank)
          EXPECT_EQ(relayed[rank] > 0, count > rank) << name << ": rank " << rank;
      }
}

class Relays : public VendorTest {
 protected:
  void SetUp() override {
    ::setenv(kRcclx.library_variable, stand_in("libstand_in_nccl.so").c_str(), 1);
  }
  // Runs `body` on ranks with a backend rcclx each.
  static void on_relays(int size, const std::function<void(Program&, TorchCommRCCLX&)>& body) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    run_ranks_of([] { return std::make_shared<TorchCommRCCLX>(); }, size,
                 [&](Program& self) {
                   body(self, dynamic_cast<TorchCommRCCLX&>(*self.comm->getBackendImpl()));
                 },
                 options_with(store), "rcclx");
  }
};

TEST_F(Relays, TheyAreOnStreamsAndTheHostGoesOn) {
  on_relays(3, [](Program& self, TorchCommRCCLX& relays) {
    auto tensor = at::full({100}, static_cast<float>(self.rank + 1));
    const auto gate = self.close_gate();
    const auto work = relays.sharded_relay_multi_group_all_reduce(
        {tensor}, ReduceOp::SUM, {{0, 2}}, {100}, /*async_op=*/true, std::nullopt);
    EXPECT_FALSE(work->isCompleted());
    EXPECT_EQ(tensor[99].item<float>(), static_cast<float>(self.rank + 1));
    gate->set_value();
    work->wait();
    self.synchronize();
    EXPECT_EQ(tensor[99].item<float>(), self.rank == 1 ? 2.0F : 4.0F);
  });
}

TEST_F(Relays, TheyAreCapturedAndReplayed) {
  on_relays(3, [](Program& self, TorchCommRCCLX& relays) {
    auto input = at::full({10}, 0.0F);
    auto output = at::full({20}, -1.0F);
    gpu::cpu_begin_capture(self.stream);
    EXPECT_EQ(relays.sharded_relay_multi_group_all_gather({input}, {output}, {{2, 1}}, {10},
                                                          /*async_op=*/false),
              nullptr);
    const auto graph = gpu::cpu_end_capture(self.stream);
    for (int round = 1; round <= 3; ++round) {
      input.fill_(static_cast<float>(10 * round + self.rank));
      gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
      if (self.rank == 0) continue;
      EXPECT_EQ(output[0].item<float>(), static_cast<float>(10 * round + 2));
      EXPECT_EQ(output[19].item<float>(), static_cast<float>(10 * round + 1));
    }
  });
}

}  // namespace
}  // namespace torch::comms::nccl
