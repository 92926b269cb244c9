// Members that come and go, and what becomes of operations that are under way then.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

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
  // With handles as they were told in `turn`.
  WorkPtr form(Program& self, int turn, const std::vector<int>& ranks, int64_t uuid,
               milliseconds limit) {
    const auto key = [&](int rank) { return std::to_string(turn) + "/" + std::to_string(rank); };
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
    for (int turn = 1; turn <= 3; ++turn) {
      form(self, turn, {0})->wait();
      EXPECT_FALSE(self.comm->isAborted());
      expect_sum(self, 1);
      self.comm->abort();
      EXPECT_TRUE(self.comm->isAborted());
      EXPECT_EQ(calls, turn);
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
      EXPECT_EQ(self.comm->getSize(), -1);
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
        for (int turn = 1; turn <= 2; ++turn) {
          form(self, turn, {0, 1})->wait();
          auto tensor = at::full({4}, static_cast<float>(10 * turn + self.rank));
          if (self.rank == 0)
            self.comm->send(tensor, 1, false);
          else
            self.comm->recv(tensor, 0, false);
          self.synchronize();
          EXPECT_EQ(first(tensor), 10 * turn);
        }
        self.comm->finalize();
      },
      std::chrono::seconds(60), "nccl-lazy");
}

class WithoutAbort final : public OfVendor<WithoutAbort, kOneCcl> {
  using OfVendor::OfVendor;
};

TEST_F(VendorMembers, ALibraryThatCannotAbortCannotChangeItsMembers) {
  ::setenv(kOneCcl.variable, stand_in("libstand_in_oneccl.so").c_str(), 1);
  auto options = options_with(store_);
  options.enable_reconfigure = true;
  const auto made = std::make_shared<WithoutAbort>("xccl");
  const auto error = error_of([&] { made->init(at::kCPU, "world", options); });
  EXPECT_EQ(error.code(), Errc::kUnsupported);
  EXPECT_NE(std::string(error.what()).find("cannot abort"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace torch::comms::nccl
