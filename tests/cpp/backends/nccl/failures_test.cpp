// What a failure of the library, a peer or a limit looks like.
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::milliseconds;

class VendorFailures : public VendorTest {
 protected:
  static at::Tensor ones() { return at::full({4}, 1.0f); }
  static void expect_texts(const CommError& error, const std::vector<std::string>& texts) {
    for (const auto& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << text << " is not in: " << error.what();
  }
};

TEST_F(VendorFailures, AnOperationThatTakesTooLongEndsTheCommunicatorWithOneError) {
  plan("hang=AllReduce:1");
  on_ranks(
      1,
      [&](Program& self) {
        auto tensor = ones();
        std::promise<WorkStatus> ended;
        const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
        work->registerWorkEndHook([&] { ended.set_value(work->status()); });
        const auto behind = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
        EXPECT_EQ(ended.get_future().get(), WorkStatus::TIMEDOUT);
        const auto error = error_of([&] { work->wait(); });
        EXPECT_EQ(error.code(), Errc::kTimeout);
        expect_texts(error, {"all_reduce", "world", "2 s", "TORCHCOMM_TIMEOUT_SECONDS"});
        EXPECT_EQ(error_of([&] { behind->wait(); }).why(), error.why());
        EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
        EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
        self.comm->finalize();  // it has been met
      },
      milliseconds(2000));
}

TEST(NcclCalls, AnErrorThatGetsTheContextOfItsCallKeepsTheRanksThatItBlames) {
  const std::string comm = "world";
  const NcclCall call{OpName::barrier, comm, 1, milliseconds(50), true, false};
  const auto error = with_context({Errc::kPeerFailed, "gone", {.peer = 2}}, call);
  EXPECT_EQ(error.context().op, "barrier");
  EXPECT_EQ(error.context().rank, 1);
  EXPECT_EQ(error.context().peer, 2);
  EXPECT_EQ(error.context().culprits, std::vector<int>{2});
}

// Pairs of nccl-lazy have communicators of their own, and one end.
class PairFailures : public VendorFailures {
 protected:
  // Rank 0 waits for a message that rank 1 does not send, and `body` ends that.
  void with_a_pair(const std::function<void(Program&, const WorkPtr&)>& body, milliseconds limit) {
    std::promise<void> over;
    on_ranks(
        2,
        [&, is_over = over.get_future().share()](Program& self) {
          auto tensor = ones();
          if (self.rank == 1) {
            self.comm->send(tensor, 0, false);
            is_over.wait();
            return self.comm->abort();
          }
          const std::shared_ptr<void> at_end(nullptr, [&over](void*) { over.set_value(); });
          self.comm->recv(tensor, 1, false);
          RecvOptions options;
          options.timeout = limit;
          body(self, self.comm->recv(tensor, 1, true, options));
        },
        std::chrono::seconds(60), "nccl-lazy");
  }
};

TEST_F(PairFailures, AMessageThatTakesTooLongEndsTheCommunicator) {
  with_a_pair(
      [&](Program& self, const WorkPtr& work) {
        const auto error = error_of([&] { work->wait(), work->hostSynchronize(); });
        EXPECT_EQ(error.code(), Errc::kTimeout);
        EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
        auto tensor = ones();
        EXPECT_EQ(error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false); }).why(),
                  error.why());
        self.comm->finalize();  // it has been met
      },
      milliseconds(50));
}

TEST_F(PairFailures, AnAbortEndsMessages) {
  with_a_pair(
      [&](Program& self, const WorkPtr& work) {
        self.comm->abort();
        EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kAborted);
        self.comm->finalize();
      },
      std::chrono::seconds(60));
}

// Who waits in the library for one that never comes does not come back.
TEST_F(VendorFailures, NoRankConnectsBeforeAllHaveTheirDevices) {
  constexpr int kSize = 3;
  for (const int without : {0, kSize - 1}) {
    plan("fail=CommInitRankConfig:1");  // whoever gets there fails otherwise
    const auto store = c10::make_intrusive<c10d::HashStore>();
    backends_test::on_threads(kSize, [&](int rank) {
      const auto backend = make_backend("nccl");
      auto options = options_with(store);
      options.hints["side_channel"] = "false";  // nor is that what the others hear it by
      const auto error = error_of([&] {
        backend->init(rank == without ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU),
                      backends_test::launch(rank, kSize), "world", options);
      });
      EXPECT_EQ(error.code(), rank == without ? Errc::kUnsupported : Errc::kPeerFailed);
      EXPECT_EQ(error.context().peer, rank == without ? -1 : without);
      expect_texts(error, {"new_comm", "works on device cpu"});
    });
  }
}

TEST_F(VendorFailures, TheStartUpBeginsToConnectBeforeItsOtherMeetings) {
  on_ranks(2, [](Program& self) {
    const auto phases = dynamic_cast<NcclApiBackend&>(*self.comm->getBackendImpl()).initPhases();
    const auto at = [&](std::string_view name) {
      return std::ranges::find(phases, name, &TorchCommBackend::InitPhase::name);
    };
    EXPECT_LT(at("arrive"), at("begin"));
    EXPECT_LT(at("begin"), at("private store"));
    EXPECT_LT(at("side channel"), at("connect"));
    EXPECT_NE(at("connect"), phases.end());
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, ATimeoutOfTheCallIsNamedAsSuch) {
  plan("hang=Broadcast:1");
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    BroadcastOptions options;
    options.timeout = milliseconds(30);
    const auto work = self.comm->broadcast(tensor, 0, true, options);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    expect_texts(error, {"broadcast", "timeout= of this call", "0.03 s"});
    // Nobody has called anything since: that is where the program learns of it.
    EXPECT_EQ(error_of([&] { self.comm->finalize(); }).why(), error.why());
  });
}

TEST_F(VendorFailures, TheDefaultLimitMayBeSet) {
  plan("hang=AllReduce:1");
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    self.comm->setTimeout(milliseconds(30));
    EXPECT_EQ(self.comm->getOptions().timeout, milliseconds(30));
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    expect_texts(error, {"all_reduce", "the communicator's timeout", "0.03 s"});
    EXPECT_EQ(error_of([&] { self.comm->finalize(); }).why(), error.why());
  });
}

TEST_F(VendorFailures, ALaunchThatDoesNotComeBackEndsAtTheLimitOfItsCall) {
  plan("stick=AllReduce:1");
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    AllReduceOptions options;
    options.timeout = milliseconds(50);
    const auto error =
        error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false, options); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    expect_texts(error, {"all_reduce", "not launched", "timeout= of this call", "0.05 s"});
    self.comm->finalize();  // it has been met
  });
}

TEST_F(VendorFailures, TheLimitCountsFromTheBeginningOfTheOperation) {
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    AllReduceOptions options;
    options.timeout = milliseconds(300);
    const auto gate = self.close_gate();
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
    const auto end = std::chrono::steady_clock::now() + options.timeout * 4 / 3;
    while (std::chrono::steady_clock::now() < end) work->isCompleted();
    EXPECT_EQ(work->status(), WorkStatus::NOT_STARTED);
    gate->set_value();
    work->hostSynchronize();
    EXPECT_TRUE(work->isCompleted());
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, ALostPeerEndsAllThatIsUnderWay) {
  plan("lose=AllReduce:1");
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    std::promise<void> announced;
    self.comm->getBackendImpl()->registerAbortHook(1, [&] { announced.set_value(); });
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed);
    announced.get_future().wait();
    EXPECT_EQ(error_of([&] { self.comm->barrier(true); }).code(), Errc::kPeerFailed);
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, AnOperationThatEndsInAnErrorOfTheLibraryIsNoneThatIsDone) {
  on_ranks(2, [&](Program& self) {
    auto tensor = at::full({self.rank == 0 ? 4 : 8}, 1.0f);  // the ranks disagree
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kVendor);
    EXPECT_EQ(work->status(), WorkStatus::ERROR);
    // Nobody has called anything since.
    EXPECT_EQ(error_of([&] { self.comm->finalize(); }).code(), Errc::kVendor);
  });
}

TEST_F(VendorFailures, ACallThatTheLibraryRefusesEndsTheCommunicator) {
  plan("fail=AllReduce:1");
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    const auto error = error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false); });
    EXPECT_EQ(error.code(), Errc::kVendor);
    expect_texts(error, {"all_reduce", "NCCL 2.30.7", "system error"});
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, AbortFromAnotherThreadWakesWhoeverWaits) {
  plan("hang=AllReduce:1");
  on_ranks(1, [&](Program& self) {
    auto tensor = ones();
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    std::thread other([&] { self.comm->getBackendImpl()->abort(); });
    EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kAborted);
    other.join();
    EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).code(), Errc::kAborted);
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, WhatTheLibraryLacksIsRefusedAndTheCommunicatorGoesOn) {
  on_ranks(1, [&](Program& self) {
    auto complex = at::full({4}, 1.0, at::kComplexFloat);
    const auto error = error_of([&] { self.comm->all_reduce(complex, ReduceOp::SUM, false); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    self.comm->broadcast(complex, 0, false);  // but it moves
    self.synchronize();
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, AnOldLibraryNamesTheVersionThatASplitNeeds) {
  ::setenv(kNccl.library_variable, stand_in("libstand_in_nccl_old.so").c_str(), 1);
  on_ranks(1, [&](Program& self) {
    const auto error = error_of([&] { self.comm->split({0}, "child", CommOptions()); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    expect_texts(error, {"2.18.0", "2.10.3"});
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, AnAllToAllIsOneCallOfALibraryThatHasIt) {
  for (const bool is_old : {false, true}) {
    const char* library = is_old ? "libstand_in_nccl_old.so" : "libstand_in_nccl.so";
    ::setenv(kNccl.library_variable, stand_in(library).c_str(), 1);
    plan("fail=AllToAll:1");
    on_ranks(1, [&](Program& self) {
      const auto input = at::arange(4);
      auto output = at::zeros({4}, at::kLong);
      const auto call = [&] { self.comm->all_to_all_single(output, input, false); };
      if (!is_old) {
        EXPECT_EQ(error_of(call).code(), Errc::kVendor);
        return self.comm->abort();
      }
      call();
      self.synchronize();
      EXPECT_TRUE(at::equal(output, input));
      self.comm->finalize();
    });
  }
}

// The library makes a communicator of those who came, and says nothing.
TEST_F(VendorFailures, ARankThatOthersNameInASplitWhileItGivesNoListIsNamed) {
  on_ranks(4, [&](Program& self) {
    const auto list = self.rank == 2 ? std::vector<int>{} : std::vector{3, 2, 1, 0};
    if (self.rank == 2) {
      EXPECT_EQ(self.comm->split(list, "child", CommOptions()), nullptr);
    } else {
      const auto error = error_of([&] { self.comm->split(list, "child", CommOptions()); });
      EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
      EXPECT_EQ(error.context().culprits, std::vector{2}) << error.what();
      expect_texts(error, {"split on 'world'", "rank 2 is in the list of 4 ranks", "passed []"});
    }
    // Nothing has changed.
    const auto child = self.comm->split({0, 1, 2, 3}, "child", CommOptions());
    auto tensor = ones();
    child->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(tensor[0].item<float>(), 4);
    child->finalize();
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, RanksOfASplitThatGiveDifferentListsAreTold) {
  on_ranks(3, [&](Program& self) {
    const auto list = self.rank == 1 ? std::vector{1, 2} : std::vector{0, 1, 2};
    const auto error = error_of([&] {
      if (self.rank == 2) return self.comm->split({0, 1, 2}, "child", CommOptions());
      return self.comm->split(list, "child", CommOptions());
    });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    const auto culprits = self.rank == 1 ? std::vector{2} : std::vector{1};
    EXPECT_EQ(error.context().culprits, culprits) << error.what();
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, RanksOfASplitThatGiveTheSameRanksInAnotherOrderAreTold) {
  on_ranks(3, [&](Program& self) {
    const auto list = self.rank == 0 ? std::vector{0, 1, 2} : std::vector{1, 0, 2};
    const auto error = error_of([&] { self.comm->split(list, "child", CommOptions()); });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    const auto culprits = self.rank == 0 ? std::vector{1, 2} : std::vector{0};
    EXPECT_EQ(error.context().culprits, culprits) << error.what();
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

// The library may wait for graphs, the device or other ranks when it aborts one.
class AbortThatHangs : public VendorFailures {};

TEST_F(AbortThatHangs, LeavesLimitsToOthersWhenACommunicatorIsDropped) {
  plan("hang=CommAbort:1,hang=AllReduce:2");
  on_ranks(1, [&](Program& self) {
    auto child = self.comm->split({0}, "child", CommOptions());
    auto tensor = ones();
    child->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    child.reset();  // the watchdog may be its last owner
    AllReduceOptions options;
    options.timeout = milliseconds(50);
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
    EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kTimeout);
    EXPECT_EQ(error_of([&] { self.comm->finalize(); }).code(), Errc::kTimeout);
  });
}

TEST_F(AbortThatHangs, EndsAFinalizeThatIsLate) {
  for (const auto* blocking : {"1", "0"}) {
    plan("hang=CommFinalize:1,hang=CommAbort:1");
    on_ranks(1,
             [&](Program& self) {
               const auto error = error_of([&] { self.comm->finalize(); });
               EXPECT_EQ(error.code(), Errc::kTimeout) << blocking;
               expect_texts(error, {"finalize on 'world'", "0.1 s"});
             },
             milliseconds(100), "nccl", {{"blocking", blocking}});
  }
}

TEST_F(VendorFailures, AFinalizeThatIsLateLeavesNothingInTheLibrary) {
  plan("hang=CommFinalize:1");
  on_ranks(
      1,
      [&](Program& self) {
        const auto address = std::dynamic_pointer_cast<NcclApiBackend>(self.comm->getBackendImpl())
                                 ->communicator_address();
        EXPECT_EQ(windows(address), 0);
        EXPECT_EQ(error_of([&] { self.comm->finalize(); }).code(), Errc::kTimeout);
        while (windows(address) >= 0) std::this_thread::yield();  // others may wait for that
      },
      milliseconds(100));
}

TEST_F(VendorFailures, WhatIsRefusedInTheMiddleOfABatchSendsNothing) {
  on_ranks(2, [&](Program& self) {
    auto tensor = ones(), other = ones();
    const auto lazy = at::_neg_view(tensor);
    for (int i = 0; i < 2; ++i) {
      auto batch = self.comm->batch_op_create();
      batch.send(tensor, 1 - self.rank);
      if (i == 0) batch.send(lazy, 1 - self.rank);
      batch.recv(other, 1 - self.rank);
      if (i == 1) {
        batch.issue(false);
        continue;
      }
      const auto error = error_of([&] { batch.issue(false); });
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
      expect_texts(error, {"batch_op_issue on 'world'", "resolve_neg"});
    }
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(tensor[0].item<float>(), 2);
    self.comm->finalize();
  });
}

TEST_F(VendorFailures, ACommunicatorThatIsDroppedEndsByItself) {
  plan("slow=AllReduce:20000");
  on_ranks(2, [&](Program& self) {
    auto tensor = ones();
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
    self.comm.reset();
    work->hostSynchronize();
    EXPECT_EQ(tensor.data_ptr<float>()[0], 2);
  });
}

}  // namespace
}  // namespace torch::comms::nccl
