// Tensors of a device on backend ctran, by way of host memory: what operations wait for, what waits
// for them, and how they end.
#include "backends/staged_world.hpp"

#include "backends/ctran/ctran_backend.hpp"

namespace torch::comms::staged_test {
namespace {

using Ctran = TorchCommCtran;

TEST(CtranStaging, EveryOperationDoesTheSameSynchronously) {
  expect_every_operation_does_the_same<Ctran>(false);
}

TEST(CtranStaging, EveryOperationDoesTheSameAsynchronously) {
  expect_every_operation_does_the_same<Ctran>(true);
}

TEST(CtranStaging, ASynchronousOneWaitsForWhatTheCurrentStreamHas) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(0);
    const auto gate = self.close_gate();
    self.launch([&] { tensor.fill_(3); });
    auto opened = std::async(std::launch::async, [gate] { gate->set_value(); });
    self.all_reduce(tensor, false);
    EXPECT_EQ(first(tensor), 6) << "the result is there";
  });
}

TEST(CtranStaging, AnAsynchronousCallReturnsAtOnceAndStartsBehindTheCurrentStream) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(0);
    float after = -1;
    const auto gate = self.close_gate();
    self.launch([&] { tensor.fill_(2); });
    const auto work = self.all_reduce(tensor, true);
    EXPECT_EQ(work->status(), WorkStatus::NOT_STARTED);
    EXPECT_FALSE(work->isCompleted());
    gate->set_value();
    work->wait();
    self.launch([&] { after = first(tensor); });
    self.synchronize();
    EXPECT_EQ(after, 4);
    work->hostSynchronize();
    EXPECT_TRUE(work->isCompleted());
  });
}

TEST(CtranStaging, AWorkIsCompleteOnceTheDeviceHasBeenWaitedFor) {
  on_ranks<Ctran>(2, [](Program& self) {
    for (int i = 0; i < 200; ++i) {
      auto tensor = number(1);
      const auto work = self.all_reduce(tensor, true);
      work->wait();
      self.synchronize();
      ASSERT_TRUE(work->isCompleted()) << "call " << i;
    }
  });
}

TEST(CtranStaging, WaitOrdersTheStreamThatIsCurrentThen) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(1);
    float after = -1;
    const auto work = self.all_reduce(tensor, true);
    const auto other = gpu::Runtime::cpu().create_stream(false);
    {
      const gpu::CpuStreamGuard current(other);
      work->wait();
      gpu::cpu_launch(other, [&] { after = first(tensor); });
      gpu::Runtime::cpu().synchronize(other);
    }
    gpu::Runtime::cpu().destroy_stream(other);
    EXPECT_EQ(after, 2);
  });
}

TEST(CtranStaging, AResultDoesNotWaitForALaterOperationsProducer) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto early = number(1), late = number(0);
    const auto first_work = self.all_reduce(early, true);
    const auto gate = self.close_gate();
    self.launch([&] { late.fill_(5); });
    const auto second_work = self.all_reduce(late, true);
    {
      const auto other = gpu::Runtime::cpu().create_stream(false);
      const gpu::CpuStreamGuard current(other);
      first_work->wait();  // the gate is closed
      gpu::Runtime::cpu().synchronize(other);
      EXPECT_EQ(first(early), 2);
      gpu::Runtime::cpu().destroy_stream(other);
    }
    gate->set_value();
    second_work->wait();
    self.synchronize();
    EXPECT_EQ(first(late), 10);
  });
}

TEST(CtranStaging, OperationsReachTheBackendInTheOrderOfTheirCalls) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(self.rank + 1);
    const auto work = self.staging->run(Broadcast{tensor, 1, true, {}});
    work->wait();
    self.all_reduce(tensor, true)->wait();
    self.all_reduce(tensor, false);
    EXPECT_EQ(first(tensor), 8);
    // And what the backend is called for otherwise comes behind them.
    const auto gate = self.close_gate();
    const auto queued = self.all_reduce(tensor, true);
    EXPECT_EQ(queued->status(), WorkStatus::NOT_STARTED);
    gate->set_value();
    self.staging->flush();
    auto own = number(1);
    self.backend->all_reduce(own, ReduceOp::SUM, false, {});
    queued->wait();
    self.synchronize();
    EXPECT_EQ(first(own), 2);
    EXPECT_EQ(first(tensor), 16);
  });
}

TEST(CtranStaging, MessagesThatCrossNeedNoBatch) {
  on_ranks<Ctran>(2, [](Program& self) {
    const int peer = 1 - self.rank;
    const auto out = number(self.rank, 1 << 20);
    auto in = number(-1, 1 << 20);
    const auto sent = self.send(out, peer, true);
    const auto received = self.recv(in, peer, true);
    received->wait();
    sent->wait();
    self.synchronize();
    EXPECT_EQ(first(in), peer);
  });
}

TEST(CtranStaging, TensorsLiveUntilTheOperationIsDoneThoughAllIsDropped) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto output = at::zeros({2 * 1024});
    const auto gate = self.close_gate();
    c10::weak_intrusive_ptr<c10::StorageImpl> watched{c10::intrusive_ptr<c10::StorageImpl>()};
    {
      const auto input = number(self.rank + 1, 1024);
      watched = input.storage().getWeakStorageImpl();
      self.staging->run(AllGatherSingle{output, input, true, {}});
    }
    EXPECT_FALSE(watched.expired());
    gate->set_value();
    self.staging->drain();
    EXPECT_EQ(first(output), 1);
    EXPECT_EQ(output.data_ptr<float>()[1024], 2);
    EXPECT_TRUE(watched.expired());
  });
}

TEST(CtranStaging, OperationsUnderWayEndThoughTheCommunicatorIsDropped) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(1);
    const auto gate = self.close_gate();
    const auto work = self.all_reduce(tensor, true);
    // What it has left runs on; the rest of this test goes without.
    self.staging = std::make_unique<Staging>(self.backend, host_device());
    gate->set_value();
    work->wait();
    self.synchronize();
    EXPECT_EQ(first(tensor), 2);
  });
}

TEST(CtranStaging, AbortEndsWhatIsWithTheBackendAndWhatWaitsForTheDevice) {
  std::promise<void> seen;
  on_ranks<Ctran>(2, [&](Program& self) {
    if (self.rank == 1) return seen.get_future().wait();
    auto running = number(1), queued = number(0);
    const auto first_work = self.all_reduce(running, true);
    self.staging->flush();
    const auto gate = self.close_gate();
    const auto second_work = self.all_reduce(queued, true);
    auto ended = std::async(std::launch::async, [&] { self.backend->abort(); });
    EXPECT_EQ(error_of([&] { first_work->wait(); }).code(), Errc::kAborted);
    EXPECT_EQ(error_of([&] { second_work->wait(); }).code(), Errc::kAborted);
    EXPECT_EQ(second_work->status(), WorkStatus::ERROR);
    EXPECT_EQ(error_of([&] { second_work->wait(); }).code(), Errc::kAborted) << "each time";
    // The device has not come to that operation yet: nothing of it is let go of.
    EXPECT_EQ(error_of([&] { self.all_reduce(queued, false); }).code(), Errc::kAborted);
    gate->set_value();
    self.synchronize();
    EXPECT_EQ(first(running), 1);
    seen.set_value();
  });
}

TEST(CtranStaging, AMismatchIsTheSameError) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(1, 4 + self.rank);
    EXPECT_EQ(error_of([&] { self.all_reduce(tensor, true)->wait(); }).code(), Errc::kMismatch);
  });
}

TEST(CtranStaging, ACaptureIsRefusedAndSaysWhy) {
  on_ranks<Ctran>(1, [](Program& self) {
    auto tensor = number(1);
    gpu::cpu_begin_capture(self.stream);
    const auto error = error_of([&] { self.all_reduce(tensor, false); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_NE(error.why().find("capture"), std::string::npos) << error.why();
    EXPECT_EQ(error.context().op, "all_reduce");
    EXPECT_EQ(error_of([&] { self.staging->run(Barrier{true, {}}); }).code(), Errc::kUnsupported);
    gpu::cpu_end_capture(self.stream);
    self.all_reduce(tensor, false);
  });
}

TEST(CtranStaging, ATensorOfAnotherDeviceIsRefused) {
  on_ranks<Ctran>(1, [](Program& self) {
    auto tensor = at::empty({4}, at::TensorOptions().device(at::kMeta));
    EXPECT_EQ(error_of([&] { self.all_reduce(tensor, false); }).code(), Errc::kInvalidArgument);
  });
}

TEST(CtranStaging, PinnedMemoryIsUsedAgainAndBounded) {
  on_ranks<Ctran>(2, [](Program& self) {
    auto tensor = number(1, 1 << 18);  // one MiB
    self.all_reduce(tensor, false);
    const auto idle = self.staging->idle_bytes();
    EXPECT_GE(idle, tensor.nbytes());
    for (int i = 0; i < 6; ++i) {
      self.all_reduce(tensor, i % 2 == 0);
      self.staging->drain();
    }
    EXPECT_EQ(self.staging->idle_bytes(), idle);
    self.staging = std::make_unique<Staging>(self.backend, host_device(), 1 << 16);
    self.all_reduce(tensor, false);
    EXPECT_EQ(self.staging->idle_bytes(), 0u) << "it is more than may be kept";
  });
}

}  // namespace
}  // namespace torch::comms::staged_test
