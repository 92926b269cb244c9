// Operations on streams: what they wait for, what waits for them, and what the host sees.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

class VendorStreams : public VendorTest {};

at::Tensor number(float value) { return at::full({4}, value); }
float first(const at::Tensor& tensor) { return tensor.data_ptr<float>()[0]; }

TEST_F(VendorStreams, ASynchronousOperationIsOrderedOnTheCurrentStreamWithoutBlockingTheHost) {
  on_ranks(2, [](Program& self) {
    auto tensor = number(0);
    float after = -1;
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { tensor.fill_(1); });
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    gpu::cpu_launch(self.stream, [&] { after = first(tensor); });
    EXPECT_EQ(first(tensor), 0) << "the host was to go on";
    gate->set_value();
    self.synchronize();
    EXPECT_EQ(after, 2);
    self.comm->finalize();
  });
}

TEST_F(VendorStreams, AnAsynchronousOneLeavesTheCurrentStreamFreeUntilItIsWaitedFor) {
  plan("slow=AllReduce:20000");
  on_ranks(2, [](Program& self) {
    auto tensor = number(1);
    float after = -1;
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    std::promise<void> passed;
    gpu::cpu_launch(self.stream, [&] { passed.set_value(); });
    passed.get_future().wait();
    work->wait();
    gpu::cpu_launch(self.stream, [&] { after = first(tensor); });
    self.synchronize();
    EXPECT_EQ(after, 2);
    self.comm->finalize();
    EXPECT_TRUE(work->isCompleted());
  });
}

TEST_F(VendorStreams, AnAsynchronousOneWaitsForWhatTheCurrentStreamHas) {
  on_ranks(2, [](Program& self) {
    auto tensor = number(0);
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { tensor.fill_(3); });
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    EXPECT_FALSE(work->isCompleted());
    gate->set_value();
    work->wait();
    self.synchronize();
    EXPECT_EQ(first(tensor), 6);
    self.comm->finalize();
  });
}

TEST_F(VendorStreams, OperationsRunInTheOrderOfTheirCallsWhateverTheirStreams) {
  plan("slow=Broadcast:10000");
  on_ranks(2, [](Program& self) {
    auto tensor = number(static_cast<float>(self.rank + 1));
    const auto work = self.comm->broadcast(tensor, 1, true);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(first(tensor), 4);
    work->wait();
    self.comm->finalize();
  });
}

TEST_F(VendorStreams, AHintPutsAsynchronousOperationsOnTheCurrentStream) {
  on_ranks(2,
           [](Program& self) {
             auto tensor = number(1);
             float after = -1;
             const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
             gpu::cpu_launch(self.stream, [&] { after = first(tensor); });  // without poll_once()
             self.synchronize();
             EXPECT_EQ(after, 2);
             self.comm->finalize();
           },
           std::chrono::seconds(60), "nccl", {{"nccl::use_current_stream", "true"}});
}

TEST_F(VendorStreams, AHintOfACallHasAStreamOfThatPriorityInTheOrderOfTheCalls) {
  for (const char* priority_hint : {"false", "true"}) {
    plan("slow=AllReduce:5000");
    const bool is_high_priority = priority_hint == std::string("true");
    on_ranks(
        2,
        [&](Program& self) {
          auto tensor = number(1);
          const auto reduce = [&](const Hints& hints) {
            AllReduceOptions options;
            options.hints = hints;
            gpu::cpu_call_counts() = {};
            return self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
          };
          std::vector<WorkPtr> works;
          works.push_back(reduce({}));
          for (const char* wanted : {"true", "false", "true"}) {
            works.push_back(reduce({{"is_high_priority_stream", wanted}}));
            const bool is_first = works.size() == 2 && !is_high_priority;
            EXPECT_EQ(gpu::cpu_call_counts().high_priority_streams, is_first ? 1u : 0u);
          }
          // Behind the current stream, and the operation before on another one.
          EXPECT_EQ(gpu::cpu_call_counts().waits, 2u);
          works.push_back(reduce({{"is_high_priority_stream", "true"}}));
          EXPECT_EQ(gpu::cpu_call_counts().waits, 1u);
          const auto error = error_of([&] { reduce({{"is_high_priority_stream", "perhaps"}}); });
          EXPECT_EQ(error.code(), Errc::kInvalidArgument);
          EXPECT_NE(error.why().find("hint is_high_priority_stream: 'perhaps'"), std::string::npos)
              << error.why();
          for (const auto& work : works) work->wait();
          self.synchronize();
          EXPECT_EQ(first(tensor), 32);
          self.comm->finalize();
        },
        std::chrono::seconds(60), "nccl", {{"is_high_priority_stream", priority_hint}});
  }
}

TEST_F(VendorStreams, TensorsLiveUntilTheOperationIsDoneThoughAllIsDropped) {
  on_ranks(2, [](Program& self) {
    auto output = at::zeros({2 * 1024});
    const auto gate = self.close_gate();
    c10::weak_intrusive_ptr<c10::StorageImpl> watched{c10::intrusive_ptr<c10::StorageImpl>()};
    {
      const auto input = at::full({1024}, static_cast<double>(self.rank + 1));
      watched = input.storage().getWeakStorageImpl();
      self.comm->all_gather_single(output, input, true);
    }
    EXPECT_FALSE(watched.expired());
    gate->set_value();
    self.comm->finalize();
    EXPECT_EQ(output.data_ptr<float>()[0], 1);
    EXPECT_EQ(output.data_ptr<float>()[1024], 2);
    EXPECT_TRUE(watched.expired());
  });
}

TEST_F(VendorStreams, ACaptureHoldsTheOperationsAndReplaysThem) {
  on_ranks(2, [](Program& self) {
    auto tensor = number(1);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->wait();
    self.comm->all_reduce(tensor, ReduceOp::SUM, true);  // nobody joins it
    const auto graph = gpu::cpu_end_capture(self.stream);
    EXPECT_EQ(first(tensor), 1);
    for (int replay = 0; replay < 2; ++replay) gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_EQ(first(tensor), 64);
    // Outside of a capture all is as before.
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(first(tensor), 128);
    self.comm->finalize();
  });
}

TEST_F(VendorStreams, MessagesOfLazyPairsNeedNoThirdRank) {
  on_ranks(
      3,
      [](Program& self) {
        auto tensor = number(static_cast<float>(self.rank));
        // Rank 2 makes no connection to anybody.
        if (self.rank == 0) self.comm->send(tensor, 1, false);
        if (self.rank == 1) self.comm->recv(tensor, 0, false);
        self.synchronize();
        EXPECT_EQ(first(tensor), self.rank == 1 ? 0 : self.rank);
        self.comm->barrier(false);
        self.synchronize();
        self.comm->finalize();
      },
      std::chrono::seconds(60), "nccl-lazy");
}

}  // namespace
}  // namespace torch::comms::nccl
