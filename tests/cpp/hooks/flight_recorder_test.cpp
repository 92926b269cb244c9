// The recorder over operations whose end the test decides.
#include <torchcomms/hooks/flight_recorder.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <latch>
#include <stdexcept>
#include <string>

#include <torchcomms/health_check.hpp>
#include <torchcomms/hooks/debug_info_writer.hpp>

#include "core/manual_backend.hpp"
#include "core/variable.hpp"

namespace torch::comms::fr {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}
bool holds(const std::string& text, const std::string& part) { return count(text, part) > 0; }

struct Recorded : ManualComm {
  explicit Recorded(size_t size = 8) : ManualComm("recorded"), hook(size, true) {
    hook.registerWithComm(comm);
  }
  FlightRecorderHook hook;
};

TEST(FlightRecorder, FollowsAWorkFromItsIssueToItsEnd) {
  Recorded recorded;
  auto& work = recorded.all_reduce();
  EXPECT_TRUE(holds(recorded.hook.dump_json(), R"("state":"scheduled")"));
  work.setStatus(WorkStatus::INPROGRESS);
  EXPECT_TRUE(holds(recorded.hook.dump_json(false), R"("state":"started")"));
  EXPECT_FALSE(holds(recorded.hook.dump_json(), "duration_ms"));
  work.setStatus(WorkStatus::COMPLETED);
  EXPECT_TRUE(holds(recorded.hook.dump_json(), R"("state":"completed")"));
  EXPECT_TRUE(holds(recorded.hook.dump_json(), R"("retired":true)"));
  EXPECT_FALSE(holds(recorded.hook.dump_json(false), "entries"));
}

TEST(FlightRecorder, ShowsAFailedWorkAsActiveAndFailed) {
  Recorded recorded;
  auto& work = recorded.all_reduce();
  work.setStatus(WorkStatus::INPROGRESS);
  work.setStatus(WorkStatus::TIMEDOUT);
  const auto dump = recorded.hook.dump_json(false);
  EXPECT_TRUE(holds(dump, R"("state":"started")"));
  EXPECT_TRUE(holds(dump, R"("failed":true)"));
}

TEST(FlightRecorder, AWorkThatEndsAfterItsEntryWasOverwrittenChangesNoOther) {
  Recorded recorded(2);
  auto& late = recorded.all_reduce();
  recorded.all_reduce();
  recorded.all_reduce();
  late.setStatus(WorkStatus::COMPLETED);
  EXPECT_EQ(count(recorded.hook.dump_json(), R"("state":"scheduled")"), 2U);
}

TEST(FlightRecorder, AWorkThatEndsAfterAResetChangesNoNewEntry) {
  Recorded recorded(4);
  auto& late = recorded.all_reduce();
  recorded.hook.reset();
  recorded.all_reduce();
  late.setStatus(WorkStatus::COMPLETED);
  const auto dump = recorded.hook.dump_json();
  EXPECT_EQ(count(dump, R"("state":"scheduled")"), 1U);
  EXPECT_EQ(count(dump, R"("record_id":0)"), 1U);
}

TEST(FlightRecorder, HoldsNoMoreThanItsRing) {
  Recorded recorded(16);
  for (int i = 0; i < 1000; ++i) recorded.comm->barrier(false);
  EXPECT_EQ(recorded.hook.size(), 1000U);
  EXPECT_EQ(count(recorded.hook.dump_json(), "record_id"), 16U);
}

TEST(FlightRecorder, ForgetsACommunicatorThatIsGoneOnceItsEntriesAre) {
  FlightRecorderHook hook(2, true);
  ManualComm kept("kept");
  {
    ManualComm gone("gone");
    hook.registerWithComm(gone.comm);
    gone.comm->barrier(false);
  }
  EXPECT_TRUE(holds(hook.dump_json(), R"("gone":{)"));
  hook.registerWithComm(kept.comm);
  for (int i = 0; i < 2; ++i) kept.comm->barrier(false);
  EXPECT_FALSE(holds(hook.dump_json(), "gone"));
}

TEST(FlightRecorder, TakesACommunicatorThatIsNotConnectedYet) {
  ManualComm late("late", false);
  FlightRecorderHook hook(4, true);
  hook.registerWithComm(late.comm);
  EXPECT_TRUE(holds(hook.dump_json(), R"("ranks":"[]")"));
  late.comm->reconfigure({});
  late.comm->barrier(false);
  EXPECT_TRUE(holds(hook.dump_json(), R"("ranks":"[40]")"));
  EXPECT_TRUE(holds(hook.dump_json(), R"("global_rank":40)"));
}

// Whoever joins has counted nothing before.
TEST(FlightRecorder, EveryMembershipIsAGroupThatCountsFromOne) {
  ManualComm party("party", false);
  FlightRecorderHook hook(8, true);
  hook.registerWithComm(party.comm);
  const auto reconfigure = [&](int64_t uuid) {
    party.comm->reconfigure({.uuid = uuid, .handles = {}, .timeout = {}, .hints = {}});
  };
  reconfigure(7);
  auto& in_flight = party.all_reduce();
  party.comm->barrier(false);
  reconfigure(9);
  party.comm->barrier(false);
  in_flight.setStatus(WorkStatus::ERROR);
  party.comm->barrier(false);
  const auto dump = hook.dump_json();
  EXPECT_EQ(count(dump, R"("process_group":["party#7","manual"])"), 2U);
  EXPECT_EQ(count(dump, R"("process_group":["party#9","manual"])"), 2U);
  EXPECT_EQ(count(dump, R"("collective_seq_id":1,)"), 2U);
  EXPECT_EQ(count(dump, R"("collective_seq_id":2,)"), 2U);
  EXPECT_EQ(count(dump, R"("failed":true)"), 1U);
  EXPECT_TRUE(holds(dump, R"("party#7":{)") && holds(dump, R"("party#9":{)")) << dump;
}

TEST(FlightRecorder, WhatHasItsOwnNumberIsNoCollectiveOfItsGroup) {
  FlightRecorder recorder(8);
  const auto group = recorder.add_group("group", "backend");
  for (const uint64_t number : {uint64_t{1}, uint64_t{1} << 58, uint64_t{2}}) {
    Entry entry;
    entry.group = group;
    entry.sequence = number;
    const auto id = recorder.record(std::move(entry));
    recorder.started(id);
    recorder.ended(id, true);
  }
  EXPECT_EQ(group->last_enqueued, 2U);
  EXPECT_EQ(group->last_started, 2U);
  EXPECT_EQ(group->last_completed, 2U);
}

TEST(FlightRecorder, NumbersAsTheCommunicatorDoesAlsoWhereItIsRegisteredLate) {
  ManualComm late("late");
  late.comm->barrier(false);
  FlightRecorderHook hook(4, true);
  hook.registerWithComm(late.comm);
  late.comm->barrier(false);
  const auto dump = hook.dump_json();
  EXPECT_TRUE(holds(dump, R"("collective_seq_id":2,)")) << dump;
  EXPECT_TRUE(holds(dump, R"("last_completed_collective":"2")")) << dump;
}

TEST(FlightRecorder, ARefusedCollectiveCountsForNothingInItsGroup) {
  Recorded recorded;
  recorded.comm->barrier(false);
  const auto refuse = recorded.comm->registerPreHook(
      [](size_t, const PreHookArgs&) { throw std::runtime_error("no"); });
  EXPECT_THROW(recorded.comm->barrier(false), std::runtime_error);
  const auto dump = recorded.hook.dump_json();
  EXPECT_TRUE(holds(dump, R"("refused":true)")) << dump;
  EXPECT_TRUE(holds(dump, R"("last_enqueued_collective":"1")")) << dump;
}

// The operation has run, whatever becomes of the call.
TEST(FlightRecorder, APostHookThatThrowsChangesNoEntry) {
  ManualComm observed("observed");
  const auto complain = observed.comm->registerPostHook(
      [](size_t, const PostHookArgs&) { throw std::runtime_error("no"); });
  FlightRecorderHook hook(4, true);  // registered after it: no hook of a recorder would run
  hook.registerWithComm(observed.comm);
  EXPECT_THROW(observed.comm->barrier(false), std::runtime_error);
  const auto dump = hook.dump_json();
  EXPECT_TRUE(holds(dump, R"("state":"completed")") && holds(dump, R"("failed":false)")) << dump;
}

TEST(FlightRecorder, EscapesWhatJsonCannotHold) {
  ManualComm odd("a \"name\"\n\\with\x01 all");
  FlightRecorderHook hook(4, true);
  hook.registerWithComm(odd.comm);
  EXPECT_TRUE(holds(hook.dump_json(), R"("a \"name\"\u000a\\with\u0001 all")"));
}

// An abort of a process that goes on returns at once; of one that ends, it gives others time.
TEST(AbortHook, WaitsOnlyWhereTheLibraryEndsTheProcess) {
  using Clock = std::chrono::steady_clock;
  const Variable wait("TORCHCOMM_HEALTH_CHECK_WAIT_MS", "400");
  Recorded recorded;
  auto& health = TorchCommsHealthCheck::get();
  EXPECT_FALSE(health.isTimedOut());
  auto began = Clock::now();
  recorded.backend->fail();
  EXPECT_LT(Clock::now() - began, std::chrono::milliseconds(300));
  EXPECT_TRUE(health.isTimedOut());

  health.setEnding();
  began = Clock::now();
  recorded.backend->fail();
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(400));
}

class Keeping : public DebugInfoWriter {
 public:
  explicit Keeping(std::vector<std::string>& kept) : DebugInfoWriter("kept_", 0), kept_(kept) {}
  void write(const std::string& trace) override { kept_.push_back(trace); }

 private:
  std::vector<std::string>& kept_;
};

TEST(DebugInfoWriter, CanBeReplaced) {
  std::vector<std::string> kept;
  DebugInfoWriter::registerWriter(std::make_unique<Keeping>(kept));
  EXPECT_EQ(DebugInfoWriter::getWriter(7)->getWriterTarget(), "kept_0");
  Recorded recorded;
  recorded.comm->barrier(false);
  recorded.hook.dump_file(7);
  DebugInfoWriter::registerWriter(nullptr);
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept.front().substr(0, 2), "\x80\x02");
}

TEST(DebugInfoWriter, NamesTheFileByItsPrefixAndTheRank) {
  const Variable cache("XDG_CACHE_HOME", "/cache");
  const Variable unset("TORCHCOMM_FR_DUMP_TEMP_FILE", nullptr);
  EXPECT_EQ(DebugInfoWriter::getWriter(3)->getWriterTarget(), "/cache/torch/comm_lib_trace_rank_3");
  const Variable prefix("TORCHCOMM_FR_DUMP_TEMP_FILE", "/other/trace_");
  EXPECT_EQ(DebugInfoWriter::getWriter(3)->getWriterTarget(), "/other/trace_3");
}

TEST(DebugInfoWriter, TwoThreadsWriteWholeFiles) {
  namespace fs = std::filesystem;
  const auto folder =
      fs::path(testing::TempDir()) / ("torchcomms_writer_" + std::to_string(::getpid()));
  const Variable prefix("TORCHCOMM_FR_DUMP_TEMP_FILE", (folder / "trace_").c_str());
  // Of different sizes, so that one inside the other would show.
  const auto text_of = [](char what) {
    return std::string(size_t{1} << (what == 'a' ? 18 : 20), what);
  };
  std::latch begin(2);
  const auto write = [&](char what) {
    const auto text = text_of(what);
    begin.arrive_and_wait();
    for (int i = 0; i < 200; ++i) {
      DebugInfoWriter::getWriter(0)->write(text);
      std::ifstream file(folder / "trace_0", std::ios::binary);
      const std::string read{std::istreambuf_iterator<char>(file), {}};
      EXPECT_TRUE(read == text_of('a') || read == text_of('b'));
    }
  };
  auto one = std::async(std::launch::async, write, 'a');
  auto other = std::async(std::launch::async, write, 'b');
  EXPECT_NO_THROW(one.get());
  EXPECT_NO_THROW(other.get());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace torch::comms::fr
