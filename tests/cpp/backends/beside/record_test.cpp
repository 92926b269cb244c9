#include "backends/beside/record.hpp"

#include <gtest/gtest.h>

#include <string>

#include <torchcomms/types.hpp>

#include "base/op_order.hpp"

namespace torch::comms::beside {
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
side::Aside on_window(const std::string& name) {
  side::Aside aside;
  name.copy(aside.name, sizeof aside.name - 1);
  return aside;
}

TEST(Record, KnowsNothingBeforeTheFirstCall) {
  const Record record(2);
  const auto answer = record.about(1);
  EXPECT_EQ(record.open(), 0u);
  EXPECT_EQ(answer.place.called, 0u);
  EXPECT_EQ(answer.place.finished, 0u);
  EXPECT_EQ(answer.place.print.sequence, 0u);
  EXPECT_EQ(answer.prints[0].sequence, 0u);
}

TEST(Record, TellsWhatRunsAndWhatWasCalledBefore) {
  Record record(2);
  for (uint64_t number = 1; number <= 3; ++number) record.begins(collective(number, number));
  record.ends(collective(1, 1));
  const auto answer = record.about(3);
  EXPECT_EQ(record.open(), 2u);
  EXPECT_EQ(answer.place.called, 3u);
  EXPECT_EQ(answer.place.finished, 1u);
  EXPECT_EQ(answer.place.print.words(), "all_reduce(float32, 2 elements, SUM) as number 2");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer.prints.at(i).sequence, 3 - i);
    EXPECT_EQ(answer.prints.at(i).count, static_cast<int64_t>(3 - i));
  }
  EXPECT_EQ(answer.prints.at(3).sequence, 0u);
}

TEST(Record, ACollectiveThatEndsBeforeAnEarlierOneChangesNotWhatIsWaitedFor) {
  Record record(2);
  record.begins(collective(1));
  record.begins(collective(2));
  record.ends(collective(2));
  EXPECT_EQ(record.open(), 1u);
  EXPECT_EQ(record.about(1).place.finished, 0u);
  record.ends(collective(1));
  EXPECT_EQ(record.open(), 0u);
  EXPECT_EQ(record.about(1).place.finished, 2u);
  EXPECT_EQ(record.about(1).place.print.sequence, 2u);
}

TEST(Record, KeepsAllThatAreUnderWay) {
  Record record(2);
  constexpr uint64_t kCalls = 5000;
  for (uint64_t number = 1; number <= kCalls; ++number) record.begins(collective(number, number));
  EXPECT_EQ(record.open(), 1u);
  EXPECT_EQ(record.about(kCalls).prints[0].count, static_cast<int64_t>(kCalls));
  EXPECT_EQ(record.about(1).prints[0].count, 1);
  EXPECT_EQ(record.about(0).place.print.count, 1);
  for (uint64_t number = 1; number <= kCalls; ++number) record.ends(collective(number, number));
  EXPECT_EQ(record.open(), 0u);
  EXPECT_EQ(record.about(0).place.finished, kCalls);
}

TEST(Record, ForgetsWhatEndedLongAgo) {
  Record record(2);
  constexpr uint64_t kCalls = 100'000;
  for (uint64_t number = 1; number <= kCalls; ++number) {
    record.begins(collective(number));
    record.ends(collective(number));
  }
  EXPECT_EQ(record.about(1).prints[0].sequence, 0u);
  EXPECT_EQ(record.about(kCalls - 100).prints[0].sequence, kCalls - 100);
}

// So that a program that never waits for anything does not take all memory.
TEST(Record, ForgetsWhatIsUnderWayWhereThereIsTooMuchOfIt) {
  Record record(2);
  constexpr uint64_t kCalls = 70'000;
  for (uint64_t number = 1; number <= kCalls; ++number) record.begins(collective(number));
  EXPECT_EQ(record.open(), kCalls - 65'536 + 1);
  EXPECT_EQ(record.about(1).prints[0].sequence, 0u);
}

TEST(Record, OfMessagesAndCallsOnWindowsTheOneUnderWayCounts) {
  Record record(2);
  record.begins(message_to(1));
  record.begins_on_window(on_window("signal"));
  record.ends_on_window();
  auto place = record.about(0).place;
  EXPECT_EQ(place.asides_called, 2u);
  EXPECT_EQ(place.asides_finished, 1u);
  EXPECT_EQ(place.aside.words(), "send of 12 bytes to rank 1");
  record.ends(message_to(1));
  place = record.about(0).place;
  EXPECT_EQ(place.asides_finished, 2u);
  EXPECT_EQ(place.aside.words(), "signal");
  EXPECT_EQ(place.called, 0u);
}

}  // namespace
}  // namespace torch::comms::beside
