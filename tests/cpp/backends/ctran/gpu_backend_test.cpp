// Backend ctran where kernels carry out what is on the device: the stand-in's, for host memory.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/ctran/stand_in_kernels.hpp"
#include "backends/nccl/temporary_file.hpp"
#include "core/work/deferred_teardown.hpp"

namespace torch::comms::ctran_test {
namespace {

using nccl::alone;
using nccl::error_of;
using nccl::Program;
using std::chrono::milliseconds;

float first(const at::Tensor& tensor) { return tensor.const_data_ptr<float>()[0]; }

class CtranOnDevice : public StandInKernels {};

TEST_F(CtranOnDevice, DescribesItself) {
  on_ranks(2, [](Program& self) {
    const auto links = self.comm->getBackendImpl()->links();
    EXPECT_NE(links[static_cast<size_t>(1 - self.rank)].find("kernels over mapped memory"),
              std::string::npos);
    const auto algorithms = self.comm->getBackendImpl()->algorithms();
    ASSERT_FALSE(algorithms.empty());
    for (const auto& range : algorithms) EXPECT_NE(range.algorithm, "nothing");
    self.comm->finalize();
  });
}

std::vector<std::string> all_reduce_of(const Program& self) {
  std::vector<std::string> texts;
  for (const auto& range : self.comm->getBackendImpl()->algorithms())
    if (range.operation == OpName::all_reduce)
      texts.push_back(std::to_string(range.bytes_from) + " " + range.algorithm + ", " + range.why);
  return texts;
}

TEST_F(CtranOnDevice, ATuningFileDecidesAndHintsGoBeforeIt) {
  const nccl::TemporaryFile file(
      "torchcomms tuning 1\n"
      "kernel all_reduce gpu host-memory ranks 2..2 bytes 0..1023 kind any mode any algorithm "
      "two_shot_line blocks 8\n"
      // The library's row is for those who have one; what the kernel cannot run is passed over.
      "kernel all_reduce gpu host-memory ranks 2..2 bytes 0..4096 kind any mode any algorithm nccl "
      "blocks 0\n"
      "kernel all_reduce gpu host-memory ranks 2..2 bytes 0..1073741824 kind any mode any "
      "algorithm one_shot_ll blocks 64\n");
  const auto with = [&](const std::string& algorithm) {
    return [&file, algorithm](int) {
      Hints hints{{"ctran::tuning_file", file.path()}};
      if (!algorithm.empty()) hints["ctran::kernel_algorithm"] = algorithm;
      return hints;
    };
  };
  const auto expect = [](std::vector<std::string> want) {
    return [want](Program& self) {
      EXPECT_EQ(all_reduce_of(self), want);
      auto tensor = filled(static_cast<float>(self.rank + 1));
      self.comm->all_reduce(tensor, ReduceOp::SUM, false);
      self.synchronize();
      EXPECT_EQ(first(tensor), 3);
      self.comm->finalize();
    };
  };
  on_ranks(2,
           expect({"0 two_shot_line, tuning file", "1024 one_shot_ll, tuning file",
                   "131072 two_shot_line, kernels are all there is"}),
           std::chrono::seconds(60), with(""));
  on_ranks(2, expect({"0 one_shot_line, kernels are all there is"}), std::chrono::seconds(60),
           with("one_shot_line/4"));
}

TEST_F(CtranOnDevice, OperationsAreOnTheCurrentStreamAndTheHostGoesOn) {
  on_ranks(3, [](Program& self) {
    auto tensor = filled(0);
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { tensor.fill_(2); });
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    EXPECT_EQ(first(tensor), 0);
    gate->set_value();
    self.synchronize();
    EXPECT_EQ(first(tensor), 6);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, ListsOfMessagesAreOneOperation) {
  on_ranks(3, [](Program& self) {
    // Rank r sends r + s + 1 numbers to rank s.
    std::vector<uint64_t> out, in;
    for (int peer = 0; peer < 3; ++peer) {
      out.push_back(static_cast<uint64_t>(self.rank + peer + 1));
      in.push_back(static_cast<uint64_t>(self.rank + peer + 1));
    }
    const auto count = 3 * self.rank + 6;
    const auto input = filled(static_cast<float>(self.rank), count);
    auto output = filled(-1, count);
    self.comm->all_to_all_v_single(output, input, in, out, false);
    self.synchronize();
    const auto* at = output.const_data_ptr<float>();
    for (int peer = 0; peer < 3; ++peer)
      for (uint64_t i = 0; i < in[static_cast<size_t>(peer)]; ++i)
        EXPECT_EQ(*at++, static_cast<float>(peer));
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, SlotsOfAListAreReducedToTheirRanksInEveryDtype) {
  on_ranks(2, [](Program& self) {
    Tensors input{at::full({3}, 2, at::kShort), at::full({3}, 5, at::kShort)};
    auto output = at::zeros({3}, at::kShort);
    self.comm->reduce_scatter(output, input, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(output.const_data_ptr<int16_t>()[2], self.rank == 0 ? 4 : 10);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, AFactorMayBeAnElement) {
  on_ranks(2, [](Program& self) {
    auto tensor = at::full({2}, 3, at::kLong);
    const auto factor = at::full({1}, self.rank + 1, at::kLong);
    self.comm->all_reduce(tensor, ReduceOp::make_nccl_premul_sum(factor), false);
    self.synchronize();
    EXPECT_EQ(tensor.const_data_ptr<int64_t>()[0], 9);
    EXPECT_EQ(error_of([&] {
                self.comm->all_reduce(tensor, ReduceOp::make_nccl_premul_sum(filled(1, 2)), false);
              }).code(),
              Errc::kInvalidArgument);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, ASplitHasKernelsOfItsOwn) {
  on_ranks(4, [](Program& self) {
    const std::vector<int> ranks =
        self.rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    const auto child = self.comm->split(ranks, "half");
    auto tensor = filled(static_cast<float>(self.rank));
    child->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->barrier(false);
    self.synchronize();
    EXPECT_EQ(first(tensor), self.rank % 2 == 0 ? 2 : 4);
    child->finalize();
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, AMissingRankIsATimeoutThatEndsTheCommunicator) {
  on_ranks(2, alone([](Program& self) {
             AllReduceOptions options;
             options.timeout = milliseconds(100);
             auto tensor = filled(1);
             const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
             EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kTimeout);
             EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
             EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).code(), Errc::kTimeout);
           }));
}

TEST_F(CtranOnDevice, TheDefaultLimitThatIsSetIsTheKernelsToo) {
  on_ranks(2, alone([](Program& self) {
             self.comm->setTimeout(milliseconds(100));
             auto tensor = filled(1);
             const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
             const auto error = error_of([&] { work->hostSynchronize(); });
             EXPECT_EQ(error.code(), Errc::kTimeout);
             EXPECT_NE(error.why().find("0.1 s, the communicator's"), std::string::npos)
                 << error.what();
           }));
}

TEST_F(CtranOnDevice, RanksThatDisagreeAreToldOnAllOfThem) {
  for (const bool is_root : {false, true})
    on_ranks(3, [is_root](Program& self) {
      auto tensor = filled(1, !is_root && self.rank == 2 ? 5 : 4);
      const auto error = error_of([&] {
        if (is_root)
          self.comm->broadcast(tensor, self.rank == 2 ? 2 : 0, true)->hostSynchronize();
        else
          self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
        self.comm->barrier(true)->hostSynchronize();  // two roots wait for nobody
      });
      EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
      EXPECT_NE(error.why().find("has called something else"), std::string::npos) << error.what();
      EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).code(), Errc::kMismatch);
      EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
    });
}

TEST_F(CtranOnDevice, AMessageNobodyTakesIsATimeout) {
  on_ranks(2, alone([](Program& self) {
             RecvOptions options;
             options.timeout = milliseconds(100);
             auto tensor = filled(1);
             const auto work = self.comm->recv(tensor, 1, true, options);
             const auto error = error_of([&] { work->hostSynchronize(); });
             EXPECT_EQ(error.code(), Errc::kTimeout);
             EXPECT_EQ(error.context().op, "recv");
           }));
}

TEST_F(CtranOnDevice, APeerThatGivesUpEndsWhatWaitsForItAndIsNamed) {
  std::promise<void> launched;
  on_ranks(2, [&, is_launched = launched.get_future().share()](Program& self) {
    if (self.rank == 1) {
      is_launched.wait();
      return self.comm->abort();
    }
    auto tensor = filled(1);
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    launched.set_value();
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().peer, 1);
    EXPECT_EQ(error.context().op, "all_reduce");
    EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
  });
}

enum class LeaveMode { kFinalizes, kDrops, kAborts };

void leave(Program& self, LeaveMode how) {
  if (how == LeaveMode::kFinalizes) return self.comm->finalize();
  if (how == LeaveMode::kAborts) return self.comm->abort();
  self.comm = nullptr;
}

TEST_F(CtranOnDevice, APeerThatHasLeftEndsWhatWaitsForItAndIsNamed) {
  for (const auto how : {LeaveMode::kFinalizes, LeaveMode::kDrops})
    on_ranks(3, [how](Program& self) {
      auto tensor = filled(1);
      self.comm->all_reduce(tensor, ReduceOp::SUM, false);
      self.synchronize();
      if (self.rank == 2) return leave(self, how);
      const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
      const auto error = error_of([&] { work->hostSynchronize(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(error.context().culprits, std::vector{2}) << error.what();
      EXPECT_NE(error.why().find("has closed the communicator"), std::string::npos) << error.what();
    });
}

TEST_F(CtranOnDevice, InAReplayTooWhoeverIsWaitedForInVainIsNamed) {
  for (const auto how : {LeaveMode::kFinalizes, LeaveMode::kDrops, LeaveMode::kAborts}) {
    std::promise<void> replayed;
    on_ranks(2, [&, is_replayed = replayed.get_future().share()](Program& self) {
      if (self.rank == 1) {
        is_replayed.wait();
        return leave(self, how);
      }
      auto tensor = filled(1);
      gpu::cpu_begin_capture(self.stream);
      self.comm->all_reduce(tensor, ReduceOp::SUM, false);
      const auto graph = gpu::cpu_end_capture(self.stream);
      gpu::cpu_launch_graph(graph, self.stream);
      replayed.set_value();
      self.synchronize();
      EXPECT_TRUE(std::isnan(first(tensor)));
      const auto error = error_of([&] { self.comm->barrier(false); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(error.context().culprits, std::vector{1}) << error.what();
    });
  }
}

TEST_F(CtranOnDevice, GraphsGoOnWhenTheCommunicatorHasGone) {
  for (const auto how : {LeaveMode::kFinalizes, LeaveMode::kDrops})
    for (const int last : {0, 1}) {  // who leaves
      std::promise<void> gone;
      on_ranks(2, [&, has_gone = gone.get_future().share()](Program& self) {
        auto tensor = filled(1);
        gpu::cpu_begin_capture(self.stream);
        self.comm->all_reduce(tensor, ReduceOp::SUM, false);
        const auto graph = gpu::cpu_end_capture(self.stream);
        if (self.rank <= last) leave(self, how);
        wait_for_teardowns(0);
        // The other one waits in its first replay while this one goes.
        if (self.rank == 1) gpu::cpu_launch_graph(graph, self.stream);
        self.rank == 1 ? gone.set_value() : has_gone.wait();
        for (int replay = self.rank; replay < 3; ++replay)
          gpu::cpu_launch_graph(graph, self.stream);
        self.synchronize();
        EXPECT_EQ(first(tensor), 8);
      });
    }
}

TEST_F(CtranOnDevice, WhatAPeerHasSentBeforeItLeftArrives) {
  std::promise<void> left;
  on_ranks(2, [&, has_left = left.get_future().share()](Program& self) {
    if (self.rank == 1) {
      auto tensor = filled(7);
      self.comm->send(tensor, 0, false);
      self.comm->finalize();
      return left.set_value();
    }
    auto got = filled(0), more = filled(0);
    has_left.wait();
    self.comm->recv(got, 1, true)->hostSynchronize();
    EXPECT_EQ(first(got), 7);
    const auto work = self.comm->recv(more, 1, true);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().op, "recv");
    EXPECT_EQ(error.context().peer, 1);
  });
}

TEST_F(CtranOnDevice, ItIsCapturedAndReplayed) {
  on_ranks(2, [](Program& self) {
    auto tensor = filled(1);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    for (int replay = 0; replay < 3; ++replay) gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_EQ(first(tensor), 8);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, AMessageToItselfNeedsItsOtherSideInTheSameCall) {
  on_ranks(2, [](Program& self) {
    const auto source = filled(7);
    auto target = filled(0);
    const auto error = error_of([&] { self.comm->send(source, self.rank, true)->wait(); });
    EXPECT_EQ(error.code(), Errc::kInvalidArgument);
    EXPECT_NE(error.why().find("same call"), std::string::npos) << error.why();
    auto batch = self.comm->batch_op_create();
    batch.send(source, self.rank);
    batch.recv(target, self.rank);
    batch.issue(false);
    self.synchronize();
    EXPECT_EQ(first(target), 7);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, APreparedAllGatherRunsAnyNumberOfTimes) {
  on_ranks(2, [](Program& self) {
    auto output = filled(-1, 8);
    auto* const handle = self.comm->all_gather_p_init(output);
    for (int round = 0; round < 3; ++round) {
      const auto input = filled(static_cast<float>(10 * round + self.rank));
      self.comm->all_gather_p_exec(handle, input, false);
      self.synchronize();
      EXPECT_EQ(first(output), static_cast<float>(10 * round));
      EXPECT_EQ(output.const_data_ptr<float>()[7], static_cast<float>(10 * round + 1));
    }
    self.comm->all_gather_p_free(handle);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, TensorsOfAListOnAnotherDeviceAreRefused) {
  on_ranks(2, [](Program& self) {
    auto tensor = at::full({2}, 1, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
    EXPECT_EQ(error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false); }).code(),
              Errc::kInvalidArgument);
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, ARankAloneCopiesOnTheStream) {
  on_ranks(1, [](Program& self) {
    auto tensor = filled(0);
    auto output = filled(0);
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { tensor.fill_(3); });
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->all_gather_single(output, tensor, false);
    EXPECT_EQ(first(output), 0);
    gate->set_value();
    self.synchronize();
    EXPECT_EQ(first(tensor), 3);
    EXPECT_EQ(first(output), 3);
    EXPECT_EQ(self.comm->getBackendImpl()->links()[0].find("kernels"), std::string::npos);
    EXPECT_EQ(self.comm->getBackendImpl()->algorithms().front().algorithm, "copy");
    self.comm->finalize();
  });
}

TEST_F(CtranOnDevice, ARankAloneHasEveryOperation) {
  on_ranks(1, [](Program& self) {
    auto& comm = *self.comm;
    const auto input = filled(2);
    const auto is_there = [&](const at::Tensor& output, float value = 2) {
      self.synchronize();
      EXPECT_EQ(first(output), value);
      return filled(0);
    };
    auto output = filled(0);
    const Tensors outputs{output}, inputs{input};
    comm.reduce_scatter_single(output, input, ReduceOp::MAX, false);
    output.copy_(is_there(output));
    comm.reduce_scatter(output, inputs, ReduceOp::AVG, true)->wait();
    output.copy_(is_there(output));
    comm.all_gather(outputs, input, true)->wait();
    output.copy_(is_there(output));
    comm.all_to_all_single(output, input, false);
    output.copy_(is_there(output));
    comm.all_to_all(outputs, inputs, false);
    output.copy_(is_there(output));
    comm.all_to_all_v_single(output, input, {4}, {4}, false);
    output.copy_(is_there(output));
    comm.gather(outputs, input, 0, false);
    output.copy_(is_there(output));
    comm.scatter(output, inputs, 0, false);
    output.copy_(is_there(output));
    comm.gather_single(output, input, 0, false);
    is_there(output);
    comm.all_reduce(output, ReduceOp::make_nccl_premul_sum(0.5), false);
    comm.broadcast(output, 0, false);
    comm.barrier(false);
    is_there(output, 1);
    auto integers = at::full({2}, 3, at::kLong);
    EXPECT_EQ(error_of([&] {
                comm.all_reduce(integers, ReduceOp::make_nccl_premul_sum(0.5), false);
              }).code(),
              Errc::kInvalidArgument);
    comm.all_reduce(integers, ReduceOp::make_nccl_premul_sum(at::full({1}, 4, at::kLong)), false);
    self.synchronize();
    EXPECT_EQ(integers.const_data_ptr<int64_t>()[1], 12);
    for (const auto dtype : {at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e5m2}) {
      auto values = at::full({2}, 3, at::kInt).to(dtype);
      const auto factor = at::full({1}, 4, at::kInt).to(dtype);
      comm.all_reduce(values, ReduceOp::make_nccl_premul_sum(factor), false);
      self.synchronize();
      EXPECT_EQ(values.to(at::kInt).const_data_ptr<int>()[1], 12) << dtype;
    }
    comm.finalize();
  });
}

TEST_F(CtranOnDevice, ARankAloneIsCapturedToo) {
  on_ranks(1, [](Program& self) {
    const auto input = filled(1);
    auto output = filled(0);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_gather_single(output, input, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    EXPECT_EQ(first(output), 0);
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_EQ(first(output), 1);
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::ctran_test
