#include "vendor/communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "vendor/ranks.hpp"

namespace torch::comms::nccl {
namespace {

using abi::DataType;
using abi::RedOp;

// true: calls that do not block, as the backends make them.
class LibraryCommunicator : public StandInTest, public testing::WithParamInterface<bool> {
 protected:
  void ranks(int size, const std::function<void(Rank&)>& body) {
    with_ranks(load(kNccl, "libstand_in_nccl.so"), size, body, GetParam());
  }
  abi::Config config() const {
    abi::Config config;
    if (GetParam()) config.blocking = 0;
    return config;
  }
  static int sum_of_ones(Rank& self) {
    int32_t value = 1;
    self.run([&](const VendorLibrary& t, abi::Comm c) {
      return t.AllReduce(&value, &value, 1, DataType::kInt32, RedOp::kSum, c, self.stream);
    });
    return value;
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, LibraryCommunicator, testing::Bool(),
                         [](const auto& info) { return info.param ? "InProgress" : "Blocking"; });

TEST_P(LibraryCommunicator, ConnectsAndCloses) {
  plan("progress=3");
  ranks(3, [](Rank& self) {
    EXPECT_EQ(sum_of_ones(self), 3);
    self.comm->close(within());
    EXPECT_THROW(sum_of_ones(self), CommError);
  });
}

TEST_P(LibraryCommunicator, SplitsByColorInTheOrderOfKeys) {
  ranks(4, [&](Rank& self) {
    const bool odd = self.rank() % 2 == 1;
    // Ranks 0 and 2 change places.
    const auto child = self.comm->split(odd ? abi::kNoColor : 7, 3 - self.rank(),
                                        self.rank() == 2 ? 0 : 1, 2, config(), within());
    if (odd) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    Rank member{child, self.stream};
    int32_t value = 100 + self.rank();
    member.run([&](const VendorLibrary& t, abi::Comm c) {
      return t.Broadcast(&value, &value, 1, DataType::kInt32, 0, c, self.stream);
    });
    EXPECT_EQ(value, 102);
    EXPECT_EQ(sum_of_ones(member), 2);
  });
}

TEST_P(LibraryCommunicator, ShrinksToTheRanksThatStayInTheirOrder) {
  ranks(4, [&](Rank& self) {
    if (self.rank() == 0 || self.rank() == 2) return self.comm->close(within());
    Rank fewer{self.comm->shrink({0, 2}, config(), {}, within()), self.stream};
    EXPECT_EQ(fewer.size(), 2);
    EXPECT_EQ(fewer.rank(), self.rank() / 2);
    EXPECT_EQ(sum_of_ones(fewer), 2);
    fewer.comm->close(within());
  });
}

TEST_P(LibraryCommunicator, ACallThatFailsThrowsWithTheLibrarysWords) {
  ranks(1, [](Rank& self) {
    plan("fail=AllReduce:1");
    try {
      sum_of_ones(self);
      FAIL() << "it went well";
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kVendor);
      EXPECT_NE(std::string(e.what()).find("system error"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("NCCL 2.30.7"), std::string::npos) << e.what();
    }
    EXPECT_EQ(sum_of_ones(self), 1) << "the group of the failed call was left open";
  });
}

TEST_P(LibraryCommunicator, AbortEndsAnOperationThatHangs) {
  plan("hang=AllReduce:1");
  ranks(1, [](Rank& self) {
    int32_t value = 1;
    self.launch([&](const VendorLibrary& t, abi::Comm c) {
      return t.AllReduce(&value, &value, 1, DataType::kInt32, RedOp::kSum, c, self.stream);
    });
    EXPECT_EQ(self.comm->check_async([] { return Context{}; }), nullptr);
    EXPECT_TRUE(self.comm->abort({Errc::kAborted, "the test wants it"}));
    EXPECT_FALSE(self.comm->abort({Errc::kAborted, "again"}));
    gpu::Runtime::cpu().synchronize(self.stream);
    try {
      sum_of_ones(self);
      FAIL() << "it went well";
    } catch (const CommError& e) {
      EXPECT_EQ(e.why(), "the test wants it");
    }
  });
}

TEST_P(LibraryCommunicator, ALostPeerShowsAsAnAsynchronousError) {
  plan("lose=AllReduce:1");
  ranks(1, [](Rank& self) {
    int32_t value = 1;
    self.launch([&](const VendorLibrary& t, abi::Comm c) {
      return t.AllReduce(&value, &value, 1, DataType::kInt32, RedOp::kSum, c, self.stream);
    });
    std::exception_ptr error;
    while (!error) error = self.comm->check_async([] { return Context{.op = "look"}; });
    try {
      std::rethrow_exception(error);
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kPeerFailed);
    }
    self.comm->abort({Errc::kAborted, "enough"});
  });
}

TEST_P(LibraryCommunicator, AGroupThatIsCutShortIsClosed) {
  ranks(1, [](Rank& self) {
    const auto error = [&] {
      try {
        self.launch([](const VendorLibrary&, abi::Comm) -> abi::Result {
          throw CommError(Errc::kInvalidArgument, "no tensor");
        });
      } catch (const CommError& e) {
        return e;
      }
      return CommError(Errc::kInternal, "it went well");
    }();
    EXPECT_EQ(error.code(), Errc::kSystem) << "what was sent before is with the library";
    EXPECT_NE(error.why().find("interrupted"), std::string::npos) << error.why();
    EXPECT_NE(error.why().find("no tensor"), std::string::npos) << error.why();
    EXPECT_EQ(sum_of_ones(self), 1);
  });
}

// The library may wait for graphs, the device, or other ranks.
TEST_P(LibraryCommunicator, NobodyWaitsForAnAbortThatDoesNotReturn) {
  plan("hang=CommAbort:1,hang=CommAbort:2,hang=CommAbort:3,hang=CommAbort:4");
  const auto before = Clock::now();
  ranks(1, [&](Rank& self) {
    const auto way = self.comm->split(0, 0, 0, 1, config(), within());
    const auto other = self.comm->split(0, 0, 0, 1, config(), within());
    auto dropped = self.comm->split(0, 0, 0, 1, config(), within());
    self.comm->attach_child(way);
    self.comm->attach_child(other);
    self.comm->abort({Errc::kAborted, "the test wants it"});
    EXPECT_TRUE(way->failure());
    const auto aborted = Clock::now();
    // All at once: a second, and not one each.
    EXPECT_LT(aborted - before, std::chrono::milliseconds(2500));
    dropped.reset();
    EXPECT_LT(Clock::now() - aborted, std::chrono::milliseconds(2500));
  });
  plan("");
}

class Nonblocking : public StandInTest {
 protected:
  std::shared_ptr<const VendorLibrary> table() {
    return std::make_shared<const VendorLibrary>(load(kNccl, "libstand_in_nccl.so"));
  }
  static abi::Config config() {
    abi::Config config;
    config.blocking = 0;
    return config;
  }
};

TEST_F(Nonblocking, AConnectionThatNobodyAnswersEndsAtItsDeadline) {
  const auto library = table();
  const auto id = Communicator::make_id(*library, {});
  try {
    auto wait = within(std::chrono::milliseconds(50));
    wait.context = [] { return Context{.op = "new_comm"}; };
    Communicator::connect(library, 2, 0, id, config(), {}, wait);
    FAIL() << "it connected";
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kTimeout);
    EXPECT_EQ(e.context().op, "new_comm");
  }
}

TEST_F(Nonblocking, WhoeverWaitsMayBeCalledAway) {
  const auto library = table();
  const auto id = Communicator::make_id(*library, {});
  struct CalledAway {};
  auto wait = within();
  wait.interrupt_check = [] { throw CalledAway{}; };
  EXPECT_THROW(Communicator::connect(library, 2, 0, id, config(), {}, wait), CalledAway);
}

TEST_F(Nonblocking, AbortEndsACallThatIsUnderWay) {
  std::atomic<bool> waits{false};
  with_ranks(
      *table(), 1,
      [&](Rank& self) {
        plan("progress=1000000000");
        auto wait = within();
        wait.interrupt_check = [&] { waits = true; };
        std::thread other([&] {
          while (!waits) std::this_thread::yield();
          self.comm->abort({Errc::kAborted, "from another thread"});
        });
        int32_t value = 1;
        try {
          self.comm->group(
              [&](const VendorLibrary& t, abi::Comm c) {
                return t.AllReduce(&value, &value, 1, DataType::kInt32, RedOp::kSum, c,
                                   self.stream);
              },
              [&wait] { return wait; });
          ADD_FAILURE() << "it returned";
        } catch (const CommError& e) {
          EXPECT_EQ(e.why(), "from another thread");
        }
        other.join();
      },
      /*nonblocking=*/true);
}

TEST_F(Nonblocking, AnOldLibraryRefusesToSplitAndGoesOn) {
  with_ranks(load(kNccl, "libstand_in_nccl_old.so"), 1, [](Rank& self) {
    try {
      self.comm->split(0, 0, 0, 1, {}, within());
      FAIL() << "it split";
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kUnsupported);
    }
    EXPECT_FALSE(self.comm->failure());
  });
}

}  // namespace
}  // namespace torch::comms::nccl
