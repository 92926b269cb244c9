// The call log over operations whose end the test decides.
#include <torchcomms/hooks/clog.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <torchcomms/base/error.hpp>

#include "core/manual_backend.hpp"

namespace torch::comms {
namespace {

class Logged : public ::testing::Test {
 protected:
  ~Logged() override { std::filesystem::remove(path); }

  // What follows the last '|' is a time and left out.
  std::vector<std::string> lines() const {
    std::vector<std::string> found;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      found.push_back(line.substr(0, line.rfind("|+")));
    return found;
  }

  std::string path =
      (std::filesystem::temp_directory_path() / ("clog_test_" + std::to_string(::getpid())))
          .string();
  ClogHook hook{path, {"LIFECYCLE"}};
};

TEST_F(Logged, AWaitForWhatIsUnderWayIsAnEvent) {
  ManualComm manual("waited");
  hook.registerWithComm(manual.comm);
  auto& work = manual.all_reduce();
  work.setStatus(WorkStatus::INPROGRESS);
  work.wait();
  work.setStatus(WorkStatus::COMPLETED);
  work.wait();
  const auto all = lines();
  ASSERT_EQ(all.size(), 8U);
  EXPECT_EQ(all[3], "C0|Q|work_id=0");
  EXPECT_EQ(all[4], "C0|S");
  EXPECT_EQ(all[5], "C0|W");
  EXPECT_EQ(all[6], "C0|E");
  EXPECT_EQ(all[7], "WARN|lifecycle event W for unknown work_id 0");
}

TEST_F(Logged, WhatHasNotEndedAtTheLastFinalizeIsALeak) {
  ManualComm first("first"), second("second");
  hook.registerWithComm(first.comm);
  hook.registerWithComm(second.comm);
  first.all_reduce();
  second.all_reduce().setStatus(WorkStatus::INPROGRESS);
  second.all_reduce().setStatus(WorkStatus::COMPLETED);
  first.comm->finalize();
  const auto before = lines().size();
  second.comm->finalize();
  const auto all = lines();
  ASSERT_EQ(all.size(), before + 2);
  EXPECT_EQ(all[before], "WARN|comm=first|leaked work_id=0|corr_id=0|pending_events=S,E");
  EXPECT_EQ(all[before + 1], "WARN|comm=second|leaked work_id=1|corr_id=1|pending_events=E");
}

TEST_F(Logged, WhoWasDroppedOrUnregisteredIsNotWaitedFor) {
  ManualComm last("last");
  {
    ManualComm dropped("dropped");
    hook.registerWithComm(dropped.comm);
    hook.registerWithComm(last.comm);
    EXPECT_THROW(hook.registerWithComm(last.comm), CommError);
  }
  last.all_reduce();
  last.comm->finalize();
  const auto all = lines();
  EXPECT_EQ(all.back(), "WARN|comm=last|leaked work_id=0|corr_id=0|pending_events=S,E");
  ManualComm unregistered("unregistered"), next("next");
  hook.registerWithComm(unregistered.comm);
  hook.unregister();
  hook.registerWithComm(next.comm);
  next.all_reduce();
  next.comm->finalize();
  EXPECT_EQ(lines().back(), "WARN|comm=next|leaked work_id=1|corr_id=1|pending_events=S,E");
}

TEST_F(Logged, ACommunicatorThatIsNotConnectedIsToldOfAtItsFirstOperation) {
  ManualComm late("late", false);
  hook.registerWithComm(late.comm);
  EXPECT_EQ(lines().size(), 1U);
  late.comm->reconfigure({});
  late.comm->barrier(false);
  EXPECT_EQ(lines()[1], "new_comm|comm=late|rank=0|world_size=1");
  late.comm->reconfigure({.uuid = 5, .handles = {}, .timeout = {}, .hints = {}});
  late.comm->barrier(false);
  const auto now = lines();
  EXPECT_EQ(std::ranges::count(now, "reconfigure|comm=late|uuid=5|rank=0|world_size=1"), 1);
  EXPECT_EQ(std::ranges::count(now, "new_comm|comm=late|rank=0|world_size=1"), 1);
}

}  // namespace
}  // namespace torch::comms
