// What ends the kernels of a communicator, and what users see of it.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <mutex>

#include "backends/ncclx/world.hpp"

namespace torch::comms::ncclx {
namespace {

using std::chrono::milliseconds;

at::Tensor ones() { return at::full({4}, 1.0f); }

class NcclxFailures : public NcclxTest {};

TEST_F(NcclxFailures, ARankThatDoesNotComeIsATimeoutThatEndsTheCommunicator) {
  on_ranks(2, alone([](Program& self) {
             auto tensor = ones();
             AllReduceOptions options;
             options.timeout = milliseconds(200);
             const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true, options);
             const auto error = error_of([&] { work->hostSynchronize(); });
             EXPECT_EQ(error.code(), Errc::kTimeout);
             EXPECT_EQ(error.context().op, "all_reduce");
             EXPECT_EQ(work->status(), WorkStatus::TIMEDOUT);
             EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
             EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
           }));
}

TEST_F(NcclxFailures, AReplayWhosePeerDoesNotComeEndsAtItsLimitAndNamesIt) {
  std::promise<void> over;
  on_ranks(2, [&, wait = over.get_future().share()](Program& self) {
    auto tensor = ones();
    AllReduceOptions options;
    options.timeout = milliseconds(100);
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false, options);
    const auto graph = gpu::cpu_end_capture(self.stream);
    if (self.rank == 1) {
      wait.wait();
      self.comm->abort();
      return;
    }
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_TRUE(std::isnan(first(tensor)));
    const auto error = error_of([&] { self.comm->barrier(false); });
    EXPECT_EQ(error.code(), Errc::kTimeout);
    EXPECT_EQ(error.context().op, "all_reduce");
    EXPECT_EQ(error.context().peer, 1);
    EXPECT_NE(error.why().find("waiting for rank 1"), std::string::npos) << error.why();
    over.set_value();
  });
}

TEST_F(NcclxFailures, ALimitThatIsTheCommunicatorsMayChangeBetweenReplays) {
  std::promise<void> over;
  on_ranks(2, [&, wait = over.get_future().share()](Program& self) {
    auto tensor = ones();
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_EQ(first(tensor), 2);
    if (self.rank == 1) {
      wait.wait();
      return self.comm->abort();
    }
    self.comm->setTimeout(milliseconds(100));
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    const auto error = error_of([&] { self.comm->barrier(false); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().peer, 1);
    over.set_value();
  });
}

TEST_F(NcclxFailures, AReplayThatFailsIsSeenThoughNothingElseIsCalled) {
  on_ranks(2, alone([](Program& self) {
             auto tensor = ones();
             AllReduceOptions options;
             options.timeout = milliseconds(100);
             std::promise<void> aborted;
             const auto hook = self.comm->registerAbortHook([&] { aborted.set_value(); });
             gpu::cpu_begin_capture(self.stream);
             self.comm->all_reduce(tensor, ReduceOp::SUM, false, options);
             const auto graph = gpu::cpu_end_capture(self.stream);
             gpu::cpu_launch_graph(graph, self.stream);
             self.synchronize();
             EXPECT_EQ(aborted.get_future().wait_for(std::chrono::seconds(20)),
                       std::future_status::ready);
             EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
           }));
}

// The rank that detects it first informs the other, which then has no failure of its own to report.
TEST_F(NcclxFailures, AReplayThatFailsOtherwiseThanAtItsLimitIsReportedAsAnError) {
  struct Report {
    std::promise<WorkStatus> status;
    std::once_flag once;
  };
  // The second rank's failure may be reported after the test is over: its callback owns the report.
  const auto report = std::make_shared<Report>();
  on_ranks(2, [report, status = report->status.get_future().share()](Program& self) {
    backend_of(self).set_unowned_failure_callback([report](TorchWork& work) {
      std::call_once(report->once, [&] { report->status.set_value(work.status()); });
    });
    auto tensor = ones();
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, self.rank == 0 ? ReduceOp::SUM : ReduceOp::MAX, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    ASSERT_EQ(status.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(status.get(), WorkStatus::ERROR);
  });
}

TEST_F(NcclxFailures, ReplaysOfDifferentCapturesAreADisagreement) {
  on_ranks(2, [](Program& self) {
    auto tensor = ones();
    gpu::cpu_begin_capture(self.stream);
    self.comm->all_reduce(tensor, self.rank == 0 ? ReduceOp::SUM : ReduceOp::MAX, false);
    const auto graph = gpu::cpu_end_capture(self.stream);
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_TRUE(std::isnan(first(tensor)));
    const auto error = error_of([&] { self.comm->barrier(true)->hostSynchronize(); });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    EXPECT_TRUE(self.comm->getBackendImpl()->isAborted());
  });
}

TEST_F(NcclxFailures, AbortEndsAKernelThatWaits) {
  on_ranks(2, alone([](Program& self) {
             auto tensor = ones();
             const auto work = self.comm->all_reduce(tensor, ReduceOp::SUM, true);
             self.comm->abort();
             EXPECT_EQ(error_of([&] { work->hostSynchronize(); }).code(), Errc::kAborted);
           }));
}

TEST_F(NcclxFailures, ALaunchThatIsRefusedEndsTheCommunicatorWithTheKernelsWords) {
  kernels_plan("fail=Kernel:1");
  std::promise<void> over;
  on_ranks(2, [&over](Program& self) {
    if (self.rank == 1) {
      over.get_future().wait();  // else rank 0 may hear first that this one has left
      return self.comm->abort();
    }
    auto tensor = ones();
    const auto error = error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, false); });
    EXPECT_EQ(error.code(), Errc::kVendor);
    EXPECT_EQ(error.why(), "the kernel was not launched: launch refused (719)");
    EXPECT_EQ(error_of([&] { self.comm->barrier(false); }).why(), error.why());
    over.set_value();
  });
}

TEST_F(NcclxFailures, MembersThatMeetAnewHaveKernelsAnew) {
  // What the first members left behind in their memory is no trouble to the next ones.
  for (int round = 0; round < 2; ++round)
    on_ranks(2, [](Program& self) {
      auto tensor = ones();
      self.comm->all_reduce(tensor, ReduceOp::SUM, false);
      self.synchronize();
      EXPECT_EQ(first(tensor), 2);
      self.comm->finalize();
    });
}

}  // namespace
}  // namespace torch::comms::ncclx
