#include "ctran/window/window.hpp"

#include <atomic>
#include <random>

#include "ctran/engine/world.hpp"

// Windows of ranks that are threads, over both links, in memory of every kind.
namespace torch::comms::ctran::test {
namespace {

struct Setting {
  LinkPolicy links;
  bool shared;
  friend void PrintTo(const Setting& setting, std::ostream* out) {
    *out << (setting.links == LinkPolicy::kShm ? "shm" : "tcp")
         << (setting.shared ? "_shared" : "");
  }
};

// A window with this rank's memory.
struct Opened {
  std::vector<std::byte> plain;
  std::unique_ptr<SharedMemoryBlock> block;
  Bytes memory;
  std::unique_ptr<Window> window;

  Opened(Rank& self, size_t bytes, bool shared, std::string metadata = "") {
    if (shared)
      block = std::make_unique<SharedMemoryBlock>(bytes);
    else
      plain.resize(bytes);
    memory = shared ? block->bytes() : Bytes(plain);
    window =
        Window::create(*self.group, {.memory = memory, .slots = 4, .metadata = std::move(metadata)},
                       "tensor_register", kLong);
  }
  void close(Rank& self) { window->close(*self.group, "tensor_deregister", kLong); }
};

RmaOperation put(int rank, uint64_t offset, ConstBytes from) {
  return {.kind = RmaOperation::Kind::kPut,
          .name = "put",
          .rank = rank,
          .offset = offset,
          .from = from,
          .timeout = kLong};
}
RmaOperation signal(int rank) {
  return {.kind = RmaOperation::Kind::kSignal, .name = "signal", .rank = rank, .timeout = kLong};
}
RmaOperation wait_signal(int rank, milliseconds limit = kLong) {
  return {.kind = RmaOperation::Kind::kWaitSignal,
          .name = "wait_signal",
          .rank = rank,
          .timeout = limit};
}

class Windows : public testing::TestWithParam<Setting> {
 protected:
  void run(int size, const std::function<void(Rank&)>& body) {
    test::run({.size = size, .links = GetParam().links}, body);
  }
};

std::vector<std::byte> pattern(int rank, int round, size_t size) {
  std::vector<std::byte> bytes(size);
  std::mt19937 source(static_cast<unsigned>(rank * 1000 + round));
  for (auto& byte : bytes) byte = static_cast<std::byte>(source());
  return bytes;
}

TEST_P(Windows, WhoeverSeesTheSignalSeesAllOfThePut) {
  for (const int size : {1, 2, 4})
    run(size, [&](Rank& self) {
      constexpr size_t kBytes = 700'000;
      Opened opened(self, kBytes, GetParam().shared);
      const int next = (self.rank() + 1) % size, previous = (self.rank() + size - 1) % size;
      for (int round = 0; round < (kSanitized ? 10 : 40); ++round) {
        const size_t bytes = round % 5 == 0 ? kBytes - 10 : 3000u + static_cast<size_t>(round);
        const auto data = pattern(self.rank(), round, bytes);
        auto work = opened.window->start(put(next, 7, data));
        opened.window->run(signal(next));
        opened.window->run(wait_signal(previous));
        const auto want = pattern(previous, round, bytes);
        ASSERT_TRUE(std::equal(want.begin(), want.end(), opened.memory.begin() + 7)) << round;
        work.wait();
        opened.window->run(signal(previous));
        opened.window->run(wait_signal(next));
      }
      opened.close(self);
    });
}

TEST_P(Windows, AMessageWithATagComesWhileAWaitIsUnderWay) {
  run(2, [&](Rank& self) {
    Opened opened(self, 64, GetParam().shared);
    const int peer = 1 - self.rank();
    RmaOperation slot = {.kind = RmaOperation::Kind::kWaitSlot,
                         .name = "wait_signal",
                         .value = 1000,
                         .timeout = kLong};
    auto wait = opened.window->start(slot);
    self.group->run(barrier(2));
    std::vector<float> payload(4, static_cast<float>(self.rank()));
    Message message(self.rank() == 0 ? Operation::kSend : Operation::kReceive, peer, payload, 2);
    message.call.tag = 7;
    self.group->run(message.call);
    EXPECT_EQ(payload, std::vector<float>(4, 0));
    slot.kind = RmaOperation::Kind::kStore;
    slot.rank = peer;
    opened.window->run(slot);
    wait.wait();
    opened.close(self);
  });
}

TEST_P(Windows, EveryMemberKnowsSizesAndNotesOfAll) {
  run(3, [&](Rank& self) {
    const auto own = static_cast<size_t>(self.rank()) * 1000;  // rank 0 has nothing
    Opened opened(self, own, GetParam().shared, "note " + std::to_string(self.rank()));
    for (int rank = 0; rank < 3; ++rank) {
      const auto& member = opened.window->peer_windows().windows[static_cast<size_t>(rank)];
      EXPECT_EQ(member.bytes, static_cast<uint64_t>(rank) * 1000);
      EXPECT_EQ(member.metadata, "note " + std::to_string(rank));
      const bool mapped = rank == self.rank() || (GetParam().links == LinkPolicy::kShm &&
                                                  (GetParam().shared || rank == 0));
      EXPECT_EQ(member.is_mapped(), mapped) << rank;
    }
    opened.close(self);
    EXPECT_EQ(error_of([&] { opened.window->run(signal(0)); }).code(), Errc::kInvalidArgument);
  });
}

TEST_P(Windows, AnOwnerThatCallsNothingIsWrittenTo) {
  run(2, [&](Rank& self) {
    Opened opened(self, 300'000, GetParam().shared);
    if (self.rank() == 0) {
      const auto data = pattern(0, 0, 300'000);
      opened.window->run(put(1, 0, data));
      opened.window->run(signal(1));
    }
    self.sync();  // of threads: rank 1 calls nothing before
    if (self.rank() == 1) {
      const auto want = pattern(0, 0, 300'000);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), opened.memory.begin()));
      opened.window->run(wait_signal(0));
    }
    opened.close(self);
  });
}

TEST_P(Windows, ASlotHoldsWhatWasStoredLast) {
  run(2, [&](Rank& self) {
    Opened opened(self, 8, GetParam().shared);
    const int peer = 1 - self.rank();
    const auto store = [&](uint64_t value) {
      opened.window->run({.kind = RmaOperation::Kind::kStore,
                          .name = "signal",
                          .rank = peer,
                          .slot = 3,
                          .value = value,
                          .timeout = kLong});
    };
    const auto wait = [&](SlotComparison comparison, uint64_t value) {
      opened.window->run({.kind = RmaOperation::Kind::kWaitSlot,
                          .name = "wait_signal",
                          .slot = 3,
                          .value = value,
                          .comparison = comparison,
                          .timeout = kLong});
    };
    wait(SlotComparison::kEqual, 0);
    self.sync();
    store(9);
    wait(SlotComparison::kAtLeast, 8);
    self.group->run(barrier(2));
    store(3);
    wait(SlotComparison::kAtMost, 3);
    wait(SlotComparison::kEqual, 3);
    opened.close(self);
  });
}

TEST_P(Windows, AFailureFreesTheMemoryOfPutsInFlight) {
  run(2, [&](Rank& self) {
    Opened opened(self, 8 << 20, GetParam().shared);
    self.group->run(barrier(2));
    if (self.rank() == 0) {
      std::vector<EngineWork> works;
      auto data = std::make_unique<std::vector<std::byte>>(pattern(0, 0, 8 << 20));
      for (int i = 0; i < 4; ++i) works.push_back(opened.window->start(put(1, 0, *data)));
      self.group->abort("enough");
      for (auto& work : works) ASSERT_TRUE(work.wait_for(kLong));
      data.reset();  // the sanitizers see who reads it now
    }
    self.sync();
    EXPECT_NE(error_of([&] { opened.window->run(wait_signal(1 - self.rank())); }).code(),
              Errc::kTimeout);
    self.sync();
  });
}

// Its part of the window goes with its group; why that ended says more.
TEST_P(Windows, PutsToAMemberThatEndsSayWhyItDid) {
  for (const bool aborts : {true, false})
    for (int round = 0; round < 50; ++round)
      run(2, [&](Rank& self) {
        Opened opened(self, 100'000, GetParam().shared);
        self.group->run(barrier(2));
        if (self.rank() == 0) {
          opened.window->run(wait_signal(1));
          if (aborts) self.group->abort("enough");
          if (!aborts) self.group.reset();
          opened.window.reset();
        } else {
          const auto data = pattern(0, round, 100'000);
          const auto error = error_of([&] {
            opened.window->run(signal(0));
            while (true) opened.window->run(put(0, 0, data));
          });
          EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
          const std::string why = aborts ? "enough" : "has closed the communicator";
          EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
        }
        self.sync();
      });
}

TEST_P(Windows, OtherGroupsGoOnWhereOneEndedAmidItsPuts) {
  run(2, [&](Rank& self) {
    const int members[] = {0, 1};
    auto child = self.group->split(members, "child");
    Opened kept(self, 4096, GetParam().shared);
    std::vector<std::byte> memory(8 << 20);
    auto window = Window::create(*child, {.memory = memory}, "tensor_register", kLong);
    if (self.rank() == 0) {
      const auto data = pattern(0, 1, 8 << 20);
      auto work = window->start(put(1, 0, data));
      child->abort("enough");
      ASSERT_TRUE(work.wait_for(kLong));
      const auto small = pattern(0, 2, 4096);
      kept.window->run(put(1, 0, small));
      kept.window->run(signal(1));
    } else {
      kept.window->run(wait_signal(0));
      const auto want = pattern(0, 2, 4096);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), kept.memory.begin()));
    }
    kept.close(self);
    self.sync();
  });
}

TEST_P(Windows, AWaitEndsWithItsLimitItsPeerOrAnAbort) {
  run(3, [&](Rank& self) {
    Opened opened(self, 8, GetParam().shared);
    self.sync();
    if (self.rank() == 2) {
      opened.window.reset();
      self.group.reset();
      self.sync();
      return;
    }
    const auto error = error_of([&] { opened.window->run(wait_signal(2)); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
    self.sync();
  });
  run(2, [&](Rank& self) {
    Opened opened(self, 8, GetParam().shared);
    if (self.rank() == 0) {
      const auto error = error_of([&] { opened.window->run(wait_signal(1, milliseconds(50))); });
      EXPECT_EQ(error.code(), Errc::kTimeout);
      EXPECT_NE(std::string(error.what()).find("wait_signal with rank 1"), std::string::npos)
          << error.what();
    }
    self.sync();
  });
}

RmaOperation wait_slot() {
  return {.kind = RmaOperation::Kind::kWaitSlot,
          .name = "wait_signal",
          .slot = 1,
          .value = 7,
          .timeout = kLong};
}

TEST_P(Windows, ClosingOneEndsWaitsThatAreInVainAndTheGroupGoesOn) {
  for (const int size : {1, 3})
    run(size, [&](Rank& self) {
      Opened opened(self, 100, GetParam().shared);
      const int next = (self.rank() + 1) % size;
      auto satisfied = opened.window->start(wait_signal(next)),
           unsatisfied = opened.window->start(wait_signal(next));
      auto slot = opened.window->start(wait_slot());
      opened.window->run(signal((self.rank() + size - 1) % size));
      opened.close(self);
      satisfied.wait();
      for (auto* work : {&unsatisfied, &slot}) {
        const auto error = error_of([&] { work->wait(); });
        EXPECT_EQ(error.code(), Errc::kInvalidArgument) << error.what();
        EXPECT_NE(error.why().find("the window was closed"), std::string::npos);
      }
      EXPECT_FALSE(self.group->failure());
      self.group->run({.name = "barrier", .blocks = Blocks::even(0, size), .timeout = kLong});
      self.sync();
    });
}

TEST_P(Windows, MembersThatAllLeaveEndTheirWaitsForEachOther) {
  for (const int size : {1, 2})
    run(size, [&](Rank& self) {
      Opened opened(self, 100, GetParam().shared);
      const int peer = size - 1 - self.rank();
      auto satisfied = opened.window->start(wait_signal(peer)),
           unsatisfied = opened.window->start(wait_signal(peer));
      auto slot = opened.window->start(wait_slot());
      opened.window->run(signal(peer));
      self.sync();  // who leaves before that ends what others still call
      self.group->announce_leave();
      satisfied.wait();
      for (auto* work : {&unsatisfied, &slot}) {
        const auto error = error_of([&] { work->wait(); });
        EXPECT_EQ(error.code(), size == 1 ? Errc::kFinalized : Errc::kPeerFailed) << error.what();
        EXPECT_EQ(error.context().peer, peer);
      }
      self.sync();
    });
}

// A limit that passes tells what every rank did on windows last, and what it is in.
TEST_P(Windows, CallsAreToldWhereALimitPasses) {
  run(3, [&](Rank& self) {
    Opened opened(self, 100, GetParam().shared);
    EngineWork waiting;
    if (self.rank() == 1) waiting = opened.window->start(wait_signal(2));
    if (self.rank() == 2) {
      opened.window->run(put(0, 0, pattern(0, 0, 12)));
      opened.window->run(signal(0));
    }
    self.sync();
    if (self.rank() == 0) {
      opened.window->run(wait_signal(2));
      const auto error = error_of([&] { opened.window->run(wait_signal(1, milliseconds(50))); });
      EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
      for (const auto* part : {"; in wait_signal from rank 1", "; in wait_signal from rank 2",
                               "; after signal to rank 0"})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
            << "'" << part << "' is not in: " << error.what();
    }
    self.sync();
    if (self.rank() == 1) {
      EXPECT_EQ(error_of([&] { waiting.wait(); }).code(), Errc::kTimeout);
    }
    self.sync();
  });
}

TEST_P(Windows, AWindowThatIsDroppedIsWrittenToNoMore) {
  run(2, [&](Rank& self) {
    Opened opened(self, 4096, GetParam().shared);
    self.group->run(barrier(2));
    if (self.rank() == 1) opened.window.reset();
    self.group->run(barrier(2));
    if (!GetParam().shared) {
      const auto data = pattern(0, 0, 4096);
      const auto error = error_of([&] {
        if (self.rank() == 0)
          opened.window->run(put(1, 0, data));
        else
          self.group->run(barrier(2));  // without a window, frames are answered during calls
      });
      EXPECT_EQ(error.code(), Errc::kMismatch);
    }
    self.sync();
    if (self.rank() == 1 && !GetParam().shared) {
      EXPECT_EQ(opened.memory[0], std::byte{0});
    }
    self.sync();
  });
}

INSTANTIATE_TEST_SUITE_P(All, Windows,
                         testing::Values(Setting{LinkPolicy::kShm, false},
                                         Setting{LinkPolicy::kShm, true},
                                         Setting{LinkPolicy::kTcp, false},
                                         Setting{LinkPolicy::kTcp, true}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace torch::comms::ctran::test
