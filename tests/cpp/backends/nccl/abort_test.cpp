// How a communicator ends on one rank: what the other ranks hear of it, and the abort hooks.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <stdexcept>

#include "backends/nccl/world.hpp"
#include "core/work/scoped_interrupt_check.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::milliseconds;

class VendorEnds : public VendorTest {
 protected:
  void SetUp() override {
    VendorTest::SetUp();
    plan("blind=1");  // or it tells of ranks that call different things, as NCCL does not
  }
  static at::Tensor ones() { return at::full({4}, 1.0f); }
  static void expect_texts(const CommError& error, const std::vector<std::string>& texts) {
    for (const auto& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << text << " is not in: " << error.what();
  }
  // Whether the failure has been met or not.
  static void leave(TorchComm& comm) {
    try {
      comm.finalize();
    } catch (const CommError& e) {
      EXPECT_TRUE(comm.isAborted()) << e.what();
    }
  }
  // Ctrl-C, for whatever waits.
  static void throw_interrupt() { throw CommError(Errc::kAborted, "the test wants out"); }

  // Rank 2 stays away, so that an operation of the others does not end. Rank 0 leaves a
  // next_split(), as `split` has it, whose error it returns. What rank 1 is told of its operation.
  CommError peer_error_of_split(const std::function<CommError(Program&)>& split) {
    std::latch launched(2), over(1);
    std::optional<CommError> peer_error;
    on_ranks(3, [&](Program& self) {
      if (self.rank == 2) {
        over.wait();
        return self.comm->finalize();  // who leaves anyway is not told
      }
      auto tensor = ones();
      const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
      launched.arrive_and_wait();
      if (self.rank == 0) {
        const auto error = split(self);
        EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), error.code());
      } else {
        const std::shared_ptr<void> at_end(nullptr, [&](void*) { over.count_down(); });
        peer_error = error_of([&] { work->hostSynchronize(); });
        EXPECT_EQ(work->status(), WorkStatus::ERROR);
      }
      leave(*self.comm);
    });
    return *peer_error;
  }
  static CommError error_of_split(Program& self, const CommOptions& options = {}) {
    return error_of([&] { self.comm->split({0, 1, 2}, "child", options); });
  }

  // Rank 0 leaves in `body` what all do together; afterwards rank 1 calls something else.
  void expect_peer_error_afterwards(const std::function<void(Program&)>& body, Errc code,
                                    const std::vector<std::string>& texts) {
    std::latch left(1);
    on_ranks(2, [&](Program& self) {
      self.comm->barrier(false);
      self.synchronize();
      if (self.rank == 0) {
        const std::shared_ptr<void> at_end(nullptr, [&](void*) { left.count_down(); });
        return body(self);
      }
      left.wait();
      const auto error = error_of([&] {
        for (int i = 0; i < 2; ++i) self.comm->barrier(true)->hostSynchronize();
      });
      EXPECT_EQ(error.code(), code) << error.what();
      expect_texts(error, texts);
      leave(*self.comm);
    });
  }
};

TEST_F(VendorEnds, ASplitThatIsLateLetsNobodyGo) {
  const auto peer_error = peer_error_of_split([](Program& self) {
    CommOptions options;
    options.timeout = milliseconds(50);
    auto error = error_of_split(self, options);
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().peer, 2) << error.what();
    expect_texts(error, {"split", "not finished", "0.05 s, timeout= of this call",
                         "rank 2 is 1 collective behind"});
    return error;
  });
  EXPECT_EQ(peer_error.code(), Errc::kTimeout) << peer_error.what();
  expect_texts(peer_error, {"rank 0: split: ", "0.05 s"});
}

TEST_F(VendorEnds, ASplitThatAnotherThreadAbortsLetsNobodyGo) {
  const auto peer_error = peer_error_of_split([](Program& self) {
    std::latch inside(1);
    std::thread other([&] {
      inside.wait();
      self.comm->abort();
    });
    const ScopedInterruptCheck check([&, first = true]() mutable {
      if (std::exchange(first, false)) inside.count_down();
    });
    auto error = error_of_split(self);
    EXPECT_EQ(error.code(), Errc::kAborted) << error.what();
    other.join();
    return error;
  });
  EXPECT_EQ(peer_error.code(), Errc::kPeerFailed) << peer_error.what();
  expect_texts(peer_error, {"rank 0 aborted the communicator: abort() was called"});
}

TEST_F(VendorEnds, ASplitThatIsInterruptedLetsNobodyGo) {
  const auto peer_error = peer_error_of_split([](Program& self) {
    const ScopedInterruptCheck check(throw_interrupt);
    auto error = error_of_split(self);
    EXPECT_EQ(error.why(), "the test wants out");
    return error;
  });
  EXPECT_EQ(peer_error.code(), Errc::kPeerFailed) << peer_error.what();
  expect_texts(peer_error, {"rank 0 aborted the communicator: the call was interrupted"});
}

TEST_F(VendorEnds, ASplitThatIsInterruptedIsToldToWhoCallsSomethingLater) {
  expect_peer_error_afterwards(
      [](Program& self) {
        const ScopedInterruptCheck check(throw_interrupt);
        EXPECT_EQ(error_of([&] { self.comm->split({0, 1}, "child"); }).why(), "the test wants out");
      },
      Errc::kPeerFailed, {"rank 0 aborted the communicator: the call was interrupted"});
}

TEST_F(VendorEnds, AWindowWhoseOpeningIsInterruptedIsToldToWhoCallsSomethingLater) {
  expect_peer_error_afterwards(
      [](Program& self) {
        // Whatever the program throws.
        const ScopedInterruptCheck check([] { throw std::runtime_error("out"); });
        EXPECT_THROW(self.comm->window_allocate(64, false, 0), std::runtime_error);
      },
      Errc::kPeerFailed, {"rank 0 aborted the communicator: the call was interrupted"});
}

TEST_F(VendorEnds, AFinalizeThatIsInterruptedBeforeItsOperationsEndIsTold) {
  expect_peer_error_afterwards(
      [](Program& self) {
        auto tensor = ones();
        self.comm->barrier(true);
        const ScopedInterruptCheck check(throw_interrupt);
        EXPECT_EQ(error_of([&] { self.comm->finalize(); }).why(), "the test wants out");
      },
      Errc::kPeerFailed, {"rank 0 aborted the communicator: finalize() was interrupted"});
}

TEST_F(VendorEnds, AFinalizeThatIsInterruptedInTheLibraryIsTold) {
  plan("blind=1,hang=CommFinalize:1");
  expect_peer_error_afterwards(
      [](Program& self) {
        const ScopedInterruptCheck check(throw_interrupt);
        EXPECT_EQ(error_of([&] { self.comm->finalize(); }).why(), "the test wants out");
      },
      Errc::kPeerFailed, {"rank 0 aborted the communicator: finalize() was interrupted"});
}

TEST_F(VendorEnds, AFinalizeThatIsLateSaysWhereTheOthersAreAndWhatRaisesItsLimit) {
  plan("blind=1,hang=CommFinalize:1");
  expect_peer_error_afterwards(
      [](Program& self) {
        self.comm->setTimeout(milliseconds(50));
        const auto error = error_of([&] { self.comm->finalize(); });
        EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
        expect_texts(error, {"0.05 s, TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS",
                             "ranks 0, 1: in no collective, after barrier() as number 1"});
      },
      Errc::kTimeout, {"rank 0: finalize: ", "0.05 s"});
}

// Of one rank, whose first operation hangs.
class AbortHooks : public VendorEnds {
 protected:
  void SetUp() override {
    VendorEnds::SetUp();
    plan("hang=AllReduce:1,hang=AllReduce:2");
  }
  static void at_abort(Program& self, AbortHook hook) {
    self.comm->getBackendImpl()->registerAbortHook(1, std::move(hook));
  }
  static WorkPtr late(TorchComm& comm) {
    auto tensor = ones();
    AllReduceOptions options;
    options.timeout = milliseconds(50);
    return comm.all_reduce(tensor, ReduceOp::SUM, true, options);
  }
};

TEST_F(AbortHooks, HaveRunWhenTheFailureIsRaised) {
  on_ranks(1, [](Program& self) {
    std::atomic<int> ran = 0;
    at_abort(self, [&] { ++ran; });
    EXPECT_EQ(error_of([&] { late(*self.comm)->hostSynchronize(); }).code(), Errc::kTimeout);
    EXPECT_EQ(ran.load(), 1);
    leave(*self.comm);
    EXPECT_EQ(ran.load(), 1);
  });
}

TEST_F(AbortHooks, MayAbortTheirCommunicator) {
  for (const bool by_limit : {true, false})
    on_ranks(1, [&](Program& self) {
      std::latch ran(1);
      at_abort(self, [&] {
        self.comm->abort();
        ran.count_down();
      });
      if (by_limit)
        EXPECT_EQ(error_of([&] { late(*self.comm)->hostSynchronize(); }).code(), Errc::kTimeout);
      else
        self.comm->abort();
      ran.wait();
      leave(*self.comm);
    });
}

TEST_F(AbortHooks, MayWantWhatAThreadThatAbortsHolds) {
  on_ranks(1, [](Program& self) {
    std::mutex mutex;
    std::latch ran(1);
    at_abort(self, [&] {
      const std::lock_guard lock(mutex);
      ran.count_down();
    });
    {
      const std::lock_guard lock(mutex);
      self.comm->abort();
      EXPECT_FALSE(ran.try_wait());
    }
    ran.wait();
    self.comm->finalize();
  });
}

TEST_F(AbortHooks, HoldUpNoOtherLimitAndNoWork) {
  on_ranks(1, [](Program& self) {
    const auto other = self.comm->split({0}, "other");
    std::latch go(1), ended(1);
    at_abort(self, [&] { go.wait(); });
    const auto work = late(*self.comm);
    work->registerWorkEndHook([&] { ended.count_down(); });
    ended.wait();
    EXPECT_EQ(work->status(), WorkStatus::TIMEDOUT);
    EXPECT_EQ(error_of([&] { late(*other)->hostSynchronize(); }).code(), Errc::kTimeout);
    go.count_down();
    EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kTimeout);
    leave(*other);
    leave(*self.comm);
  });
}

}  // namespace
}  // namespace torch::comms::nccl
