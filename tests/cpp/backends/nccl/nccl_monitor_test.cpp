// What ranks learn of each other beside the library, which says nothing: it waits for ever where
// they disagree.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string_view>

#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class VendorSide : public VendorTest {
 public:
  using Body = std::function<WorkPtr(TorchComm&)>;

 protected:
  void SetUp() override {
    VendorTest::SetUp();
    plan("blind=1");
  }
  static at::Tensor ones(int64_t count = 96, at::ScalarType dtype = at::kFloat) {
    return at::full({count}, 1, at::TensorOptions().dtype(dtype));
  }
  static void expect_texts(const CommError& error, const std::vector<std::string>& texts) {
    for (const auto& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << text << " is not in: " << error.what();
  }

  // The last rank calls something else than the others; all are told so, with `texts`, while the
  // limit of the calls is a minute.
  void expect_mismatch(
      int size, const Body& many, const Body& one, const std::vector<std::string>& texts,
      const char* checks = "false", const std::function<void()>& before = [] {}) {
    const int odd = size - 1;
    on_ranks(size,
             [&](Program& self) {
               before();
               self.comm->barrier(false);
               self.synchronize();
               const auto began = Clock::now();
               const auto error = error_of([&] {
                 const auto work = self.rank == odd ? one(*self.comm) : many(*self.comm);
                 work->hostSynchronize();
                 // Whoever has what it called for learns of it in its next collective.
                 self.comm->barrier(true)->hostSynchronize();
               });
               EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
               EXPECT_LT(Clock::now() - began, seconds(10));  // about 0.2 s
               EXPECT_EQ(error.context().peer, size > 2 ? odd : -1) << error.what();
               expect_texts(error, {"ranks disagree: ", "as number 2"});
               expect_texts(error, texts);
               EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
               EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
               self.comm->finalize();
             },
             seconds(60), "nccl", {{"check_calls", checks}});
  }
};

VendorSide::Body all_reduce_of(int64_t count, at::ScalarType dtype = at::kFloat,
                               const ReduceOp& op = ReduceOp::SUM) {
  return [=](TorchComm& comm) {
    auto tensor = at::full({count}, 1, at::TensorOptions().dtype(dtype));
    return comm.all_reduce(tensor, op, true);
  };
}
VendorSide::Body broadcast_from(int root) {
  return [=](TorchComm& comm) {
    auto tensor = at::full({8}, 1.0f);
    return comm.broadcast(tensor, root, true);
  };
}

TEST_F(VendorSide, DifferentCountsAreFoundWhileTheLibraryWaits) {
  for (const int size : {2, 3})
    expect_mismatch(
        size, all_reduce_of(96), all_reduce_of(64),
        {"calls all_reduce(float32, 64 elements, SUM)", "all_reduce(float32, 96 elements, SUM)"});
}

TEST_F(VendorSide, DifferentOperationsAreFound) {
  const auto barrier = [](TorchComm& comm) { return comm.barrier(true); };
  for (const int size : {2, 3})
    expect_mismatch(size, all_reduce_of(96), barrier, {" calls barrier() as number 2"});
}

TEST_F(VendorSide, DifferentRootsAreFound) {
  for (const int size : {2, 3})
    expect_mismatch(size, broadcast_from(0), broadcast_from(1),
                    {"broadcast(float32, 8 elements, root 1)", "root 0)"});
}

// The library does not wait here, but adds up what it gets: only a check finds it.
TEST_F(VendorSide, DifferentReductionsAreFoundBeforeTheyBegin) {
  for (const int size : {2, 3})
    expect_mismatch(size, all_reduce_of(96), all_reduce_of(96, at::kFloat, ReduceOp::MAX),
                    {"96 elements, SUM)", "96 elements, MAX)"}, "true");
}

TEST_F(VendorSide, AProcessMayHaveMoreCommunicatorsThanItsEventRingHasPlacesFor) {
  for (const char* checks : {"true", "false"})
    expect_mismatch(3, all_reduce_of(96), all_reduce_of(64), {"64 elements, SUM)", "96 elements"},
                    checks, backends_test::push_out_of_the_ring);
}

TEST_F(VendorSide, ACheckFindsEverythingElseToo) {
  expect_mismatch(3, all_reduce_of(96), all_reduce_of(96, at::kInt),
                  {"rank 2 calls all_reduce(int32", "ranks 0, 1 call all_reduce(float32"}, "true");
  expect_mismatch(3, broadcast_from(0), broadcast_from(1), {"root 1", "root 0"}, "true");
}

TEST_F(VendorSide, CheckedCallsThatAreAlikeAreUndisturbed) {
  on_ranks(3,
           [](Program& self) {
             for (int i = 0; i < 20; ++i) {
               auto tensor = ones();
               self.comm->all_reduce(tensor, ReduceOp::SUM, i % 2 == 0)->wait();
               self.synchronize();
               EXPECT_EQ(tensor[5].item<float>(), 3);
             }
             const auto half =
                 self.comm->split(self.rank == 1 ? std::vector<int>{} : std::vector{2, 0}, "half");
             if (half) {
               auto tensor = ones();
               half->all_reduce(tensor, ReduceOp::SUM, false);
               self.synchronize();
               EXPECT_EQ(tensor[5].item<float>(), 2);
               half->finalize();
             }
             self.comm->finalize();
           },
           seconds(60), "nccl", {{"check_calls", "true"}});
}

TEST_F(VendorSide, ASplitComparesWhatItsOwnMembersCall) {
  on_ranks(4, [](Program& self) {
    const auto half =
        self.comm->split(self.rank < 2 ? std::vector{0, 1} : std::vector{3, 2}, "half");
    auto tensor = ones(self.rank == 3 ? 5 : 6);
    if (self.rank < 2) {
      half->all_reduce(tensor, ReduceOp::SUM, false);
      self.synchronize();
      EXPECT_EQ(tensor[0].item<float>(), 2);
      half->finalize();
    } else {
      const auto error =
          error_of([&] { half->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize(); });
      EXPECT_EQ(error.code(), Errc::kMismatch);
      expect_texts(error, {"rank 0 calls all_reduce(float32, 5 elements", "as number 1"});
      EXPECT_EQ(error_of([&] { half->barrier(false); }).code(), Errc::kMismatch);
      half->finalize();
    }
    auto all = ones();
    self.comm->all_reduce(all, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(all[0].item<float>(), 4);
    self.comm->finalize();
  });
}

TEST_F(VendorSide, ALimitThatPassesSaysWhereEveryRankIs) {
  std::promise<void> over;
  std::atomic<int> late = 0;
  on_ranks(3, [&, is_over = over.get_future().share()](Program& self) {
    self.comm->barrier(false);
    self.synchronize();
    if (self.rank == 1) {
      is_over.wait();
      return self.comm->finalize();  // who leaves anyway is not told
    }
    auto tensor = ones();
    AllReduceOptions options;
    options.timeout = milliseconds(300);
    const auto error = error_of(
        [&] { self.comm->all_reduce(tensor, ReduceOp::SUM, true, options)->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    EXPECT_EQ(error.context().peer, 1) << error.what();
    expect_texts(error, {"timeout= of this call", "rank 1 is 1 collective behind, since number 2",
                         "rank 1: in no collective, after barrier() as number 1",
                         "ranks 0, 2: in all_reduce(float32, 96 elements, SUM) as number 2"});
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
    if (++late == 2) over.set_value();
    self.comm->finalize();
  });
}

TEST_F(VendorSide, ARankThatDropsItsCommunicatorIsNamed) {
  on_ranks(3, [](Program& self) {
    self.comm->barrier(false);
    self.synchronize();
    if (self.rank == 2) return self.comm.reset();
    auto tensor = ones();
    const auto error =
        error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed);
    EXPECT_EQ(error.context().peer, 2) << error.what();
    expect_texts(error, {"all_reduce", "rank 2: ", "without finalize()"});
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
    self.comm->finalize();
  });
}

// A library lets the others' operations go on as if all had come when one rank ends its own.
TEST_F(VendorSide, WhatAnotherRanksLimitLetsGoIsNotDone) {
  const auto over = std::make_shared<std::promise<void>>();
  std::atomic<int> ended = 0;
  on_ranks(3, [&, is_over = over->get_future().share()](Program& self) {
    self.comm->barrier(false);
    self.synchronize();
    if (self.rank == 2) {
      is_over.wait();
      const auto error = error_of([&] { self.comm->barrier(false); });
      EXPECT_EQ(error.code(), Errc::kTimeout);
      expect_texts(error, {"barrier", "rank 0: all_reduce: ", "0.05 s"});
      return self.comm->finalize();
    }
    auto tensor = ones();
    AllReduceOptions options;
    options.timeout = self.rank == 0 ? milliseconds(50) : milliseconds(60'000);
    const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
    const auto error = error_of([&] { work->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(work->status(), self.rank == 0 ? WorkStatus::TIMEDOUT : WorkStatus::ERROR);
    expect_texts(error, {"all_reduce", "0.05 s"});
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
    if (++ended == 2) over->set_value();
    self.comm->finalize();
  });
}

TEST_F(VendorSide, WhatAnotherRanksAbortLetsGoIsNotDone) {
  const auto over = std::make_shared<std::promise<void>>();
  on_ranks(3, [&, is_over = over->get_future().share()](Program& self) {
    self.comm->barrier(false);
    self.synchronize();
    if (self.rank == 0) return self.comm->abort();
    if (self.rank == 2) {
      is_over.wait();
      return self.comm->finalize();  // who leaves anyway is not told
    }
    auto tensor = ones();
    std::optional<WorkPtr> work;
    const auto error = error_of([&] {  // it may know before it calls
      work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
      (*work)->hostSynchronize();
    });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().peer, 0) << error.what();
    expect_texts(error, {"all_reduce", "rank 0 aborted the communicator: abort() was called"});
    if (work) {
      EXPECT_EQ((*work)->status(), WorkStatus::ERROR);
    }
    EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
    over->set_value();
    self.comm->finalize();
  });
}

// What was done before counts, though it is looked at afterwards.
TEST_F(VendorSide, WhatWasDoneBeforeAnotherRankAbortsIsDone) {
  for (int round = 0; round < 20; ++round)
    on_ranks(2, [&](Program& self) {
      auto tensor = ones();
      const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
      work->hostSynchronize();
      EXPECT_EQ(tensor[5].item<float>(), 2);
      self.rank == 0 ? self.comm->abort() : self.comm->finalize();
    });
}

TEST_F(VendorSide, ARankThatEndsBeforeItGivesItsIdIsNamedAtOnce) {
  plan("fail=GetUniqueId:1,fail=GetUniqueId:2");  // it tries again
  std::atomic<int> named = 0;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  backends_test::on_threads(3, [&](int rank) {
    const auto backend = make_backend("nccl");
    const auto began = Clock::now();
    const auto error = error_of([&] {
      backend->init(at::kCPU, backends_test::launch(rank, 3), "world", options_with(store));
    });
    EXPECT_LT(Clock::now() - began, seconds(20));  // of the limit of a minute
    if (rank == 0) {
      EXPECT_EQ(error.code(), Errc::kVendor) << error.what();
    } else if (error.code() == Errc::kPeerFailed && error.context().peer == 0) {
      ++named;
    }
  });
  EXPECT_EQ(named.load(), 2);
}

TEST_F(VendorSide, WithoutItNothingIsConnectedAndNotesSaySo) {
  for (const char* wanted : {"true", "false"})
    on_ranks(
        2,
        [&](Program& self) {
          auto& backend = dynamic_cast<NcclApiBackend&>(*self.comm->getBackendImpl());
          const auto phases = backend.initPhases();
          const bool is_there = std::ranges::any_of(
              phases, [](const auto& phase) { return phase.name == "side channel"; });
          EXPECT_EQ(is_there, std::string_view(wanted) == "true");
          EXPECT_EQ(backend.describe_entries().at("side channel").starts_with("off"), !is_there);
          self.comm->finalize();
        },
        seconds(60), "nccl", {{"side_channel", wanted}, {"side_channel_interface", "127.0.0.1"}});
}

}  // namespace
}  // namespace torch::comms::nccl
