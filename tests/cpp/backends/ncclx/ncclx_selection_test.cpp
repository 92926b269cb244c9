// Who runs which collective, and what tells of it.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/nccl/temporary_file.hpp"
#include "backends/ncclx/world.hpp"

namespace torch::comms::ncclx {
namespace {

constexpr int64_t kSmall = 256, kLarge = (8 << 20) + 1;  // elements; rooted ones end at 32 MiB

at::Tensor ones(int64_t count) { return at::full({count}, 1.0f); }

AllReduceOptions by(const std::string& who) {
  AllReduceOptions options;
  options.hints["ncclx::algorithm"] = who;
  return options;
}

class NcclxChoice : public NcclxTest {};

TEST_F(NcclxChoice, SmallCollectivesAreKernelsAndLargeOnesTheLibrarys) {
  on_ranks(2, [](Program& self) {
    auto small = ones(kSmall), large = at::full({kLarge}, static_cast<float>(self.rank + 4));
    self.comm->broadcast(small, 0, false);
    EXPECT_EQ(launches_of(self), 1);
    self.comm->broadcast(large, 0, false);
    EXPECT_EQ(launches_of(self), 1);
    BroadcastOptions options;
    options.hints = by("kernels").hints;
    self.comm->broadcast(large, 1, false, options);
    EXPECT_EQ(launches_of(self), 2);
    self.comm->all_reduce(small, ReduceOp::SUM, false, by("nccl"));
    EXPECT_EQ(launches_of(self), 2);
    self.synchronize();
    EXPECT_EQ(first(small), 2);
    EXPECT_EQ(first(large), 4);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, KernelsAndTheLibraryTakeTurnsInTheOrderOfTheCallsOnAllStreams) {
  on_ranks(3, [](Program& self) {
    auto tensor = at::full({8}, static_cast<float>(self.rank + 1));
    for (int i = 0; i < 4; ++i) {
      self.comm->all_reduce(tensor, ReduceOp::SUM, i % 2 == 0, by(i < 2 ? "kernels" : "nccl"));
      self.comm->all_reduce(tensor, ReduceOp::MAX, i % 2 == 1, by(i < 2 ? "nccl" : "kernels"));
    }
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    EXPECT_EQ(first(tensor), 6 * 3 * 3 * 3 * 3);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, AHintThatTheKernelsCannotServeIsTheLibrarys) {
  on_ranks(2, [](Program& self) {
    // The stand-in's one-shot kernel ends at 64 KiB.
    auto tensor = ones(1 << 16);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false, by("one_shot_ll"));
    EXPECT_EQ(launches_of(self), 0);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false, by("two_shot_line"));
    EXPECT_EQ(launches_of(self), 1);
    EXPECT_EQ(
        error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false, by("fast")); }).code(),
        Errc::kInvalidArgument);
    self.synchronize();
    EXPECT_EQ(first(tensor), 4);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, DtypesThatTheLibraryLacksAreKernelsAtAnySize) {
  on_ranks(2, [](Program& self) {
    auto tensor = at::full({2 * kLarge}, 3, at::kShort);
    self.comm->reduce(tensor, 0, ReduceOp::SUM, false);
    EXPECT_EQ(launches_of(self), 1);
    self.synchronize();
    EXPECT_EQ(tensor.const_data_ptr<int16_t>()[2 * kLarge - 1], self.rank == 0 ? 6 : 3);
    self.comm->finalize();
  });
}

// The library drops a NaN.
TEST_F(NcclxChoice, MinimaAndMaximaOfFloatsAreKernelsAtAnySizeUnlessTheLibraryIsAskedFor) {
  on_ranks(2, [](Program& self) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const auto fresh = [&] { return at::full({2 * kLarge}, self.rank == 0 ? kNan : 1.0f); };
    auto large = fresh(), slot = at::full({kSmall}, self.rank == 0 ? kNan : 1.0f);
    self.comm->reduce(large, 1, ReduceOp::MAX, false);
    EXPECT_EQ(launches_of(self), 1);
    auto output = ones(kSmall);
    self.comm->reduce_scatter(output, {slot, slot}, ReduceOp::MIN, false);
    EXPECT_EQ(launches_of(self), 3) << "a launch for each slot";
    auto small = slot.clone();
    self.comm->all_reduce(small, ReduceOp::MAX, false, by("nccl"));
    auto whole = at::full({2 * kLarge}, self.rank, at::kInt);
    self.comm->reduce(whole, 1, ReduceOp::MAX, false);
    EXPECT_EQ(launches_of(self), 3) << "integers are for the library";
    self.synchronize();
    EXPECT_TRUE(self.rank == 0 || std::isnan(first(large)));
    EXPECT_TRUE(std::isnan(first(output)));
    EXPECT_EQ(first(small), 1);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, ACommunicatorOfTheLibraryAloneSaysWhy) {
  on_ranks(2,
           [](Program& self) {
             auto tensor = ones(kSmall);
             self.comm->all_reduce(tensor, ReduceOp::SUM, false);
             self.synchronize();
             EXPECT_EQ(first(tensor), 2);
             const auto links = self.comm->getBackendImpl()->links();
             ASSERT_EQ(links.size(), 2u);
             EXPECT_EQ(links[static_cast<size_t>(self.rank)], "self");
             EXPECT_EQ(links[static_cast<size_t>(1 - self.rank)],
                       "nccl alone (rank 0: the library was requested)");
             for (const auto& range : self.comm->getBackendImpl()->algorithms())
               EXPECT_EQ(range.algorithm, "nccl");
             self.comm->finalize();
           },
           {{"ncclx::algorithm", "nccl"}});
  ::setenv(kKernels, "/nowhere.so", 1);
  on_ranks(2, [](Program& self) {
    auto tensor = ones(kSmall);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(first(tensor), 2);
    EXPECT_NE(self.comm->getBackendImpl()->links()[static_cast<size_t>(1 - self.rank)].find(
                  "nccl alone (rank 0: cannot load the kernel library: /nowhere.so"),
              std::string::npos);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, TellsWhichAlgorithmRunsWhichSize) {
  on_ranks(2, [](Program& self) {
    std::vector<std::string> all_reduce;
    for (const auto& range : self.comm->getBackendImpl()->algorithms())
      if (range.operation == OpName::all_reduce)
        all_reduce.push_back(std::to_string(range.bytes_from) + " " + range.algorithm);
    EXPECT_EQ(all_reduce, (std::vector<std::string>{"0 one_shot_ll", "131072 two_shot_line",
                                                    "536870912 nccl"}));
    self.comm->finalize();
  });
}

// Up to a KB of floats by one algorithm, in eager calls; above it the library.
constexpr const char* kTuned =
    "torchcomms tuning 1\n"
    "kernel all_reduce gpu host-memory ranks 2..2 bytes 0..1024 kind float mode eager algorithm "
    "two_shot_line blocks 8\n"
    "kernel all_reduce gpu host-memory ranks 2..2 bytes 1025..4611686018427387904 kind any mode "
    "any algorithm nccl blocks 0\n";

TEST_F(NcclxChoice, ATuningFileOfThisGpuGoesBeforeTheTable) {
  const nccl::TemporaryFile file(kTuned);
  on_ranks(2,
           [](Program& self) {
             auto small = ones(kSmall), larger = ones(2 * kSmall);
             self.comm->all_reduce(small, ReduceOp::SUM, false);
             EXPECT_EQ(launches_of(self), 1);
             self.comm->all_reduce(larger, ReduceOp::SUM, false);
             EXPECT_EQ(launches_of(self), 1) << "the file has it for the library";
             self.comm->all_reduce(larger, ReduceOp::SUM, false, by("kernels"));
             EXPECT_EQ(launches_of(self), 2) << "the call's hint goes before the file";
             self.synchronize();
             std::vector<std::string> all_reduce;
             for (const auto& range : self.comm->getBackendImpl()->algorithms())
               if (range.operation == OpName::all_reduce)
                 all_reduce.push_back(std::to_string(range.bytes_from) + " " + range.algorithm +
                                      ", " + range.why);
             EXPECT_EQ(all_reduce,
                       (std::vector<std::string>{
                           "0 two_shot_line, tuning file, eager", "2048 nccl, tuning file, eager",
                           "0 one_shot_ll, table, graph", "2048 nccl, tuning file, graph"}));
             const auto child = self.comm->split({0, 1}, "child", {});
             child->all_reduce(larger, ReduceOp::SUM, false);
             EXPECT_EQ(launches_of(self), 2) << "a split has its parent's file";
             self.synchronize();
             child->finalize();
             self.comm->finalize();
           },
           {{"ncclx::tuning_file", file.path()}});
}

// Who writes outputs that are in windows shows where these are not in the same one.
TEST_F(NcclxChoice, ATuningFileSaysWhichRegisteredTensorsPeersWriteThemselves) {
  const auto run = [this](const std::string& tuning, bool is_on_region) {
    const nccl::TemporaryFile file("torchcomms tuning 1\n" + tuning);
    on_ranks(2,
             [is_on_region](Program& self) {
               const auto one = self.comm->window_allocate(2 * kSmall * sizeof(float));
               const auto other = self.comm->window_allocate(2 * kSmall * sizeof(float));
               const auto& window = self.rank == 0 ? one : other;
               auto output = window->get_tensor()->view(at::kFloat);
               const auto input = ones(kSmall);
               const auto gather = [&] {
                 self.comm->all_gather_single(output, input, true)->hostSynchronize();
               };
               if (is_on_region) {
                 EXPECT_NE(error_of(gather).why().find("is in another window"), std::string::npos);
                 return self.comm->abort();
               }
               gather();
               EXPECT_TRUE(at::equal(output, ones(2 * kSmall)));
               self.comm->finalize();
             },
             {{"ncclx::tuning_file", file.path()}, {"ncclx::registered", "true"}});
  };
  const std::string line =
      "kernel all_gather_single gpu host-memory ranks 2..2 bytes 0..1000000 kind any mode any ";
  run("", false);
  run(line + "algorithm region blocks 4 tensors registered\n", true);
  run(line + "algorithm one_shot_line blocks 4 tensors registered\n", false);
  run(line + "algorithm region blocks 4 tensors registered within 8\n", false);
}

TEST_F(NcclxChoice, ATuningFileOfAnotherGpuIsNotForThisOne) {
  std::string other = kTuned;
  while (other.find("host-memory") != std::string::npos)
    other.replace(other.find("host-memory"), std::string("host-memory").size(), "nvidia-h200");
  const nccl::TemporaryFile file(other);
  testing::internal::CaptureStderr();
  for (int again = 0; again < 2; ++again)
    on_ranks(2,
             [](Program& self) {
               auto tensor = ones(2 * kSmall);
               self.comm->all_reduce(tensor, ReduceOp::SUM, false);
               EXPECT_EQ(launches_of(self), 1);
               self.synchronize();
               self.comm->finalize();
             },
             {{"ncclx::tuning_file", file.path()}});
  const auto said = testing::internal::GetCapturedStderr();
  const auto place = said.find("measured on nvidia-h200 with 2 ranks, none on host-memory with 2");
  EXPECT_NE(place, std::string::npos) << said;
  EXPECT_EQ(said.find("none on host-memory", place + 60), std::string::npos) << "once: " << said;
}

TEST_F(NcclxChoice, SetConfigChangesWhoRunsACollective) {
  on_ranks(2, [](Program& self) {
    auto& backend = backend_of(self);
    auto tensor = ones(kSmall);
    backend.set_config({{"allreduceAlgo", "orig"}, {"sendrecvAlgo", "orig"}});
    backend.set_config({{"sendrecvAlgo", "ctran"}});
    backend.set_config({{"sendrecvAlgo", "ctp2p"}});
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    EXPECT_EQ(launches_of(self), 0);
    self.comm->barrier(false);
    EXPECT_EQ(launches_of(self), 1);
    EXPECT_EQ(error_of([&] {
                backend.set_config({{"allgatherAlgo", "nccl"}, {"blocking", "1"}});
              }).code(),
              Errc::kUnsupported);
    EXPECT_EQ(error_of([&] { backend.set_config({{"sendrecvAlgo", "kernels"}}); }).code(),
              Errc::kInvalidArgument);
    self.synchronize();
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, ASplitHasItsFullNameAndMeetsForKernelsAtItsFirstCollective) {
  on_ranks(3, [](Program& self) {
    const std::vector<int> pair{2, 0};
    const bool is_in = self.rank != 1;
    const auto child = self.comm->split(is_in ? pair : std::vector<int>{}, "pair", {});
    ASSERT_EQ(child != nullptr, is_in);
    if (is_in) {
      EXPECT_EQ(child->getCommName(), "world::split::0_pair_0");
      EXPECT_NE(child->getBackendImpl()->links()[static_cast<size_t>(1 - child->getRank())].find(
                    "at the first collective"),
                std::string::npos);
      auto tensor = at::full({4}, static_cast<float>(self.rank));
      child->all_reduce(tensor, ReduceOp::SUM, false);
      self.synchronize();
      EXPECT_EQ(first(tensor), 2);
      EXPECT_EQ(child->getBackendImpl()->links()[static_cast<size_t>(1 - child->getRank())],
                "kernels over mapped memory, and nccl");
      child->finalize();
    }
    EXPECT_EQ(launches_of(self), 0);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, ACaptureHoldsKernelsAndReplaysThem) {
  on_ranks(2, [](Program& self) {
    auto tensor = ones(4);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->all_reduce(tensor, ReduceOp::SUM, true, by("nccl"))->wait();
    const auto graph = gpu::cpu_end_capture(self.stream);
    EXPECT_EQ(launches_of(self), 1);
    for (int replay = 0; replay < 5; ++replay) gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_EQ(first(tensor), 1024);
    self.comm->finalize();
  });
}

TEST_F(NcclxChoice, DumpsAreByHashAndFiltered) {
  on_ranks(2, [](Program& self) {
    const auto dump = backend_of(self).comm_dump();
    EXPECT_EQ(dump.at("rank"), std::to_string(self.rank));
    EXPECT_EQ(dump.at("nRanks"), "2");
    const auto all = TorchCommNCCLX::comm_dump_all(
        {{"comm_dump::requestFields", "nRanks;GlobalInfo::communicators"}});
    ASSERT_TRUE(all.contains(dump.at("commHash")));
    EXPECT_EQ(all.at(dump.at("commHash")), (TorchCommNCCLX::Dump{{"nRanks", "2"}}));
    EXPECT_EQ(all.at("GlobalInfo").size(), 1u);
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::ncclx
