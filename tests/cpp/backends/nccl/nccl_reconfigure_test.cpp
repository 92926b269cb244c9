// Members that come and go, and what becomes of operations that are under way then.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string_view>

#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::milliseconds;

class VendorMembers : public VendorTest {
 protected:
  // Ranks that have yet to meet; `form` connects the named ones of them.
  void on_members(int size, const std::function<void(Program&)>& body,
                  milliseconds timeout = std::chrono::seconds(60),
                  const std::string& backend = "nccl") {
    auto options = options_with(store_, timeout);
    options.enable_reconfigure = true;
    on_ranks(size, body, options, backend);
  }
  WorkPtr form(Program& self, int uuid, const std::vector<int>& ranks) {
    return form(self, uuid, ranks, uuid, std::chrono::seconds(60));
  }
  // With the handles of `round`.
  WorkPtr form(Program& self, int round, const std::vector<int>& ranks, int64_t uuid,
               milliseconds limit) {
    const auto key = [&](int rank) { return std::to_string(round) + "/" + std::to_string(rank); };
    const auto own = self.comm->getInitHandle();
    store_->set(key(self.rank), std::vector<uint8_t>(own.begin(), own.end()));
    std::vector<InitHandle> handles;
    for (const int rank : ranks) {
      const auto text = store_->get(key(rank));
      handles.emplace_back(text.begin(), text.end());
    }
    ReconfigureOptions options;
    options.uuid = uuid;
    options.handles = handles;
    options.timeout = limit;
    return self.comm->reconfigure(options);
  }
  static at::Tensor ones() { return at::full({4}, 1.0f); }
  static float first(const at::Tensor& tensor) { return tensor.data_ptr<float>()[0]; }
  static void expect_sum(Program& self, float sum) {
    auto tensor = ones();
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(first(tensor), sum);
  }

  const c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(VendorMembers, ACommunicatorThatTimedOutServesItsMembersAgain) {
  plan("hang=AllReduce:1");
  on_members(
      2,
      [&](Program& self) {
        form(self, 1, {0, 1})->wait();
        auto tensor = ones();
        const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
        EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kTimeout);
        EXPECT_TRUE(self.comm->isAborted());
        form(self, 2, {1, 0})->wait();
        EXPECT_FALSE(self.comm->isAborted());
        EXPECT_EQ(self.comm->getRank(), 1 - self.rank);
        expect_sum(self, 2);
        self.comm->finalize();
      },
      milliseconds(500));
}

TEST_F(VendorMembers, AWorkInFlightIsAbortedAndTheNextMembershipIsRight) {
  on_members(2, [&](Program& self) {
    form(self, 1, {0, 1})->wait();
    auto tensor = ones();
    const auto work = self.comm->recv(tensor, 1 - self.rank, true);  // nobody sends
    form(self, 2, {0, 1})->wait();
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kAborted);
    EXPECT_NE(std::string(error.what()).find("reconfigure()"), std::string::npos);
    EXPECT_FALSE(self.comm->isAborted());
    expect_sum(self, 2);
    self.comm->finalize();
  });
}

TEST_F(VendorMembers, ASynchronousOperationThatIsUnderWayEndsFirst) {
  plan("slow=AllReduce:100000");
  on_members(2, [&](Program& self) {
    form(self, 1, {0, 1})->wait();
    auto tensor = ones();
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    form(self, 2, {0, 1})->wait();
    EXPECT_EQ(first(tensor), 2);
    self.comm->finalize();
  });
}

TEST_F(VendorMembers, AbortIsRecoveredFromAndItsHooksRunEachTime) {
  on_members(1, [&](Program& self) {
    int calls = 0;
    const auto hook = self.comm->registerAbortHook([&] { ++calls; });
    for (int round = 1; round <= 3; ++round) {
      form(self, round, {0})->wait();
      EXPECT_FALSE(self.comm->isAborted());
      expect_sum(self, 1);
      self.comm->abort();
      EXPECT_TRUE(self.comm->isAborted());
      EXPECT_EQ(calls, round);
    }
    self.comm->finalize();
  });
}

TEST_F(VendorMembers, AFailedOneLeavesNoMembersAndALaterOneConnects) {
  on_members(2, [&](Program& self) {
    form(self, 1, {0, 1})->wait();
    if (self.rank == 0) {  // and the other one is not there
      const auto work = form(self, 1, {0, 1}, 7, milliseconds(50));
      EXPECT_EQ(error_of([&] { work->wait(); }).code(), Errc::kTimeout);
      EXPECT_EQ(self.comm->getRanks(), std::vector<int>{});
      for (const auto ask : {&TorchComm::getRank, &TorchComm::getSize})
        EXPECT_EQ(error_of([&] { ((*self.comm).*ask)(); }).code(), Errc::kFinalized);
    }
    form(self, 2, {0, 1})->wait();
    expect_sum(self, 2);
    self.comm->finalize();
  });
}

TEST_F(VendorMembers, PairsOfNcclLazyAreMadeAnew) {
  on_members(
      2,
      [&](Program& self) {
        for (int round = 1; round <= 2; ++round) {
          form(self, round, {0, 1})->wait();
          auto tensor = at::full({4}, static_cast<float>(10 * round + self.rank));
          if (self.rank == 0)
            self.comm->send(tensor, 1, false);
          else
            self.comm->recv(tensor, 0, false);
          self.synchronize();
          EXPECT_EQ(first(tensor), 10 * round);
        }
        self.comm->finalize();
      },
      std::chrono::seconds(60), "nccl-lazy");
}

// Of those that were members before, some stay.
class VendorSurvivors : public VendorMembers {
 protected:
  static bool has_phase(const Program& self, std::string_view name) {
    const auto& backend = dynamic_cast<NcclApiBackend&>(*self.comm->getBackendImpl());
    return std::ranges::any_of(backend.initPhases(),
                               [&](const auto& phase) { return phase.name == name; });
  }
  static void expect_shrunk(Program& self, bool is_shrunk) {
    EXPECT_EQ(has_phase(self, "shrink"), is_shrunk);
    EXPECT_EQ(has_phase(self, "connect"), !is_shrunk);
  }
  // Of three connected ranks the second leaves; the others run `body`, and are `ranks` then, whose
  // notes say `how`.
  void without_one(const std::vector<int>& ranks, bool is_shrunk, const std::string& how,
                   const std::function<void(Program&)>& body = {}) {
    on_members(3, [&](Program& self) {
      form(self, 1, {0, 1, 2})->wait();
      expect_sum(self, 3);
      if (self.rank == 1) return self.comm->finalize();
      if (body) body(self);
      form(self, 2, ranks)->wait();
      expect_shrunk(self, is_shrunk);
      EXPECT_EQ(self.comm->getSize(), 2);
      EXPECT_EQ(ranks[static_cast<size_t>(self.comm->getRank())], self.rank);
      EXPECT_FALSE(self.comm->isAborted());
      const auto& diagnostics =
          dynamic_cast<const BackendDiagnostics&>(*self.comm->getBackendImpl());
      const auto note = diagnostics.describe_entries().at("reconfigure");
      EXPECT_NE(note.find("was created " + how), std::string::npos) << note;
      expect_sum(self, 2);
      self.comm->finalize();
    });
  }
};

TEST_F(VendorSurvivors, TheyShrinkTheirCommunicator) { without_one({0, 2}, true, "by shrinking"); }

TEST_F(VendorSurvivors, TheyMayDoSoAgainAndAgain) {
  on_members(4, [&](Program& self) {
    std::vector<int> ranks{0, 1, 2, 3};
    for (int round = 1; ranks.size() > 1; ++round, ranks.erase(ranks.begin())) {
      if (self.rank < ranks.front()) break;
      form(self, round, ranks)->wait();
      expect_shrunk(self, round > 1);
      expect_sum(self, static_cast<float>(ranks.size()));
    }
    self.comm->finalize();
  });
}

TEST_F(VendorSurvivors, WhatIsUnderWayIsAbortedByIt) {
  on_members(3, [&](Program& self) {
    form(self, 1, {0, 1, 2})->wait();
    if (self.rank == 1) return self.comm->finalize();
    auto tensor = ones();
    const auto work = self.comm->recv(tensor, 1, true);  // which sends nothing
    form(self, 2, {0, 2})->wait();
    expect_shrunk(self, true);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kAborted) << error.what();
    EXPECT_NE(std::string(error.what()).find("reconfigure()"), std::string::npos);
    expect_sum(self, 2);
    self.comm->finalize();
  });
}

TEST_F(VendorSurvivors, AnOlderLibraryConnectsThemAnew) {
  ::setenv(kNccl.library_variable, stand_in("libstand_in_nccl_old.so").c_str(), 1);
  without_one({0, 2}, false, "by a new connect: rank");
}

TEST_F(VendorSurvivors, InAnotherOrderTheyConnectAnew) {
  without_one({2, 0}, false, "by a new connect: rank");
}

TEST_F(VendorSurvivors, OneWhoseCommunicatorHasFailedHasAllConnectAnew) {
  without_one({0, 2}, false, "by a new connect: rank 1", [](Program& self) {
    if (self.rank == 2) self.comm->abort();
  });
}

TEST_F(VendorSurvivors, OneThatTheLibraryFailsHasTheOthersKnowAndTheNextTimeTheyConnect) {
  plan("fail=CommShrink:1");
  std::atomic<int> failed = 0, peer_failed = 0;
  on_members(3, [&](Program& self) {
    form(self, 1, {0, 1, 2})->wait();
    if (self.rank == 2) return self.comm->finalize();
    const auto work = form(self, 2, {0, 1});
    const auto error = error_of([&] { work->wait(); });
    ++(error.code() == Errc::kVendor ? failed : peer_failed);
    EXPECT_TRUE(error.code() == Errc::kVendor || error.code() == Errc::kPeerFailed) << error.what();
    form(self, 3, {0, 1})->wait();
    expect_shrunk(self, false);
    expect_sum(self, 2);
    self.comm->finalize();
  });
  EXPECT_EQ(failed.load(), 1);
  EXPECT_EQ(peer_failed.load(), 1);
}

TEST_F(VendorSurvivors, AnAbortThatHangsDoesNotHoldThemUp) {
  plan("hang=CommAbort:1,hang=CommAbort:2");
  on_members(2, [&](Program& self) {
    form(self, 1, {0, 1})->wait();
    form(self, 2, {0, 1})->wait();  // without anything under way
    expect_sum(self, 2);
    self.comm->finalize();
  });
}

class WithoutAbort final : public VendorBackend<WithoutAbort, kOneCcl> {
  using VendorBackend::VendorBackend;
};

TEST_F(VendorMembers, ALibraryThatCannotAbortCannotChangeItsMembers) {
  ::setenv(kOneCcl.library_variable, stand_in("libstand_in_oneccl.so").c_str(), 1);
  auto options = options_with(store_);
  options.enable_reconfigure = true;
  const auto backend = std::make_shared<WithoutAbort>("xccl");
  const auto error = error_of([&] { backend->init(at::kCPU, "world", options); });
  EXPECT_EQ(error.code(), Errc::kUnsupported);
  EXPECT_NE(std::string(error.what()).find("cannot abort"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace torch::comms::nccl
