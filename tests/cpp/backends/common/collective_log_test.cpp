#include "backends/common/collective_log.hpp"

#include <gtest/gtest.h>

#include <string>

#include <torchcomms/types.hpp>

#include "base/op_order.hpp"

namespace torch::comms::common {
namespace {

base::OpRecord collective(uint64_t number, uint64_t elements = 8) {
  return {.kind = static_cast<uint8_t>(OpName::all_reduce),
          .dtype = 6,
          .reduce_op = 0,
          .elements_in = elements,
          .elements_out = elements,
          .bytes = 4 * elements,
          .matching_sequence = number};
}
base::OpRecord message_to(int peer) {
  return {.kind = static_cast<uint8_t>(OpName::send),
          .root_or_peer = peer,
          .elements_in = 3,
          .bytes = 12,
          .matching_sequence = base::kFirstMessageSequence};
}
void begin(CollectiveLog& log, const base::OpRecord& op) { log.on_begin(op, NewWindow{}); }
void end(CollectiveLog& log, const base::OpRecord& op) { log.on_end(0, op, true); }
monitor::NonCollectiveCall on_window(const std::string& name) {
  monitor::NonCollectiveCall call;
  name.copy(call.name, sizeof call.name - 1);
  return call;
}

TEST(Record, KnowsNothingBeforeTheFirstCall) {
  const CollectiveLog record(2);
  const auto status = record.status_of(1);
  EXPECT_EQ(record.first_incomplete(), 0u);
  EXPECT_EQ(status.progress.called, 0u);
  EXPECT_EQ(status.progress.finished, 0u);
  EXPECT_EQ(status.progress.fingerprint.sequence, 0u);
  EXPECT_EQ(status.fingerprints[0].sequence, 0u);
}

TEST(Record, TellsWhatRunsAndWhatWasCalledBefore) {
  CollectiveLog record(2);
  for (uint64_t number = 1; number <= 3; ++number) begin(record, collective(number, number));
  end(record, collective(1, 1));
  const auto status = record.status_of(3);
  EXPECT_EQ(record.first_incomplete(), 2u);
  EXPECT_EQ(status.progress.called, 3u);
  EXPECT_EQ(status.progress.finished, 1u);
  EXPECT_EQ(status.progress.fingerprint.format(),
            "all_reduce(float32, 2 elements, SUM) as number 2");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(status.fingerprints.at(i).sequence, 3 - i);
    EXPECT_EQ(status.fingerprints.at(i).count, static_cast<int64_t>(3 - i));
  }
  EXPECT_EQ(status.fingerprints.at(3).sequence, 0u);
}

TEST(Record, ACollectiveThatEndsBeforeAnEarlierOneChangesNotWhatIsWaitedFor) {
  CollectiveLog record(2);
  begin(record, collective(1));
  begin(record, collective(2));
  end(record, collective(2));
  EXPECT_EQ(record.first_incomplete(), 1u);
  EXPECT_EQ(record.status_of(1).progress.finished, 0u);
  end(record, collective(1));
  EXPECT_EQ(record.first_incomplete(), 0u);
  EXPECT_EQ(record.status_of(1).progress.finished, 2u);
  EXPECT_EQ(record.status_of(1).progress.fingerprint.sequence, 2u);
}

TEST(Record, KeepsAllThatAreUnderWay) {
  CollectiveLog record(2);
  constexpr uint64_t kCalls = 5000;
  for (uint64_t number = 1; number <= kCalls; ++number) begin(record, collective(number, number));
  EXPECT_EQ(record.first_incomplete(), 1u);
  EXPECT_EQ(record.status_of(kCalls).fingerprints[0].count, static_cast<int64_t>(kCalls));
  EXPECT_EQ(record.status_of(1).fingerprints[0].count, 1);
  EXPECT_EQ(record.status_of(0).progress.fingerprint.count, 1);
  for (uint64_t number = 1; number <= kCalls; ++number) end(record, collective(number, number));
  EXPECT_EQ(record.first_incomplete(), 0u);
  EXPECT_EQ(record.status_of(0).progress.finished, kCalls);
}

TEST(Record, ForgetsWhatEndedLongAgo) {
  CollectiveLog record(2);
  constexpr uint64_t kCalls = 100'000;
  for (uint64_t number = 1; number <= kCalls; ++number) {
    begin(record, collective(number));
    end(record, collective(number));
  }
  EXPECT_EQ(record.status_of(1).fingerprints[0].sequence, 0u);
  EXPECT_EQ(record.status_of(kCalls - 100).fingerprints[0].sequence, kCalls - 100);
}

// So that a program that never waits for anything does not take all memory.
TEST(Record, ForgetsWhatIsUnderWayWhereThereIsTooMuchOfIt) {
  CollectiveLog record(2);
  constexpr uint64_t kCalls = 70'000;
  for (uint64_t number = 1; number <= kCalls; ++number) begin(record, collective(number));
  EXPECT_EQ(record.first_incomplete(), kCalls - 65'536 + 1);
  EXPECT_EQ(record.status_of(1).fingerprints[0].sequence, 0u);
}

TEST(Record, OfMessagesAndCallsOnWindowsTheOneUnderWayCounts) {
  CollectiveLog record(2);
  begin(record, message_to(1));
  record.on_window_begin(on_window("signal"));
  record.on_window_end();
  auto progress = record.status_of(0).progress;
  EXPECT_EQ(progress.p2p_started, 2u);
  EXPECT_EQ(progress.p2p_finished, 1u);
  EXPECT_EQ(progress.last_p2p.format(), "send of 12 bytes to rank 1");
  end(record, message_to(1));
  progress = record.status_of(0).progress;
  EXPECT_EQ(progress.p2p_finished, 2u);
  EXPECT_EQ(progress.last_p2p.format(), "signal");
  EXPECT_EQ(progress.called, 0u);
}

}  // namespace
}  // namespace torch::comms::common
