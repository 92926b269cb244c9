// Members of a communicator that come and go; threads are members.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "backends/gloo/world.hpp"

namespace torch::comms {
namespace {

using namespace gloo_test;

TEST(Reconfigure, TheRankListIsEmptyBeforeAndAfterAFailure) {
  auto options = options_with(c10::make_intrusive<c10d::HashStore>());
  options.enable_reconfigure = true;
  const auto comm = make_comm(0, 1, options);
  EXPECT_TRUE(comm->getRanks().empty());
  EXPECT_EQ(comm->getRank(), -1);
  EXPECT_EQ(comm->getSize(), -1);
  EXPECT_EQ(comm->getCommName(), "world");
  const auto own = comm->getInitHandle();
  comm->reconfigure({.uuid = 1, .handles = std::vector{own}, .timeout = {}, .hints = {}})->wait();
  EXPECT_EQ(comm->getRanks(), (std::vector<int>{0}));

  const auto nobody = make_comm(0, 1, options)->getInitHandle();
  const auto failed = comm->reconfigure(
      {.uuid = 2, .handles = std::vector{own, nobody}, .timeout = milliseconds(100), .hints = {}});
  EXPECT_FALSE(failed->isCompleted());
  EXPECT_EQ(error_of([&] { failed->wait(); }).code(), Errc::kTimeout);
  EXPECT_EQ(error_of([&] { failed->waitBlocking(); }).code(), Errc::kTimeout);
  EXPECT_TRUE(comm->getRanks().empty());
  EXPECT_EQ(error_of([&] { comm->barrier(false); }).code(), Errc::kFinalized);

  comm->reconfigure({.uuid = 3, .handles = std::vector{own}, .timeout = {}, .hints = {}})->wait();
  auto tensor = at::ones({3});
  comm->all_reduce(tensor, ReduceOp::SUM, false);
  EXPECT_EQ(tensor.sum().item<float>(), 3);
  comm->finalize();
}

}  // namespace
}  // namespace torch::comms
