#include "tracing/event_ring.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace torch::comms::tracing {
namespace {

TraceEvent event_of(uint64_t value) {
  TraceEvent event;
  event.time_ns = value;
  event.thread = static_cast<uint32_t>(value);
  event.op.sequence = value;
  event.op.bytes = value;
  return event;
}

TEST(EventRing, CapacityIsRoundedUpToAPowerOfTwo) {
  EXPECT_EQ(EventRing(0).capacity(), 2u);
  EXPECT_EQ(EventRing(5).capacity(), 8u);
  EXPECT_EQ(EventRing(8).capacity(), 8u);
}

TEST(EventRing, ReadsBackWhatWasRecordedOldestFirst) {
  EventRing ring(8);
  for (uint64_t i = 0; i < 5; ++i) ring.record(event_of(i));
  const auto entries = ring.read();
  ASSERT_EQ(entries.size(), 5u);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(entries[i].index, i);
    EXPECT_EQ(entries[i].event.op.bytes, i);
  }
}

TEST(EventRing, KeepsTheNewestWhenItIsFull) {
  EventRing ring(4);
  for (uint64_t i = 0; i < 11; ++i) ring.record(event_of(i));
  const auto entries = ring.read();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries.front().index, 7u);
  EXPECT_EQ(entries.back().index, 10u);
  EXPECT_EQ(ring.recorded(), 11u);
}

TEST(EventRing, WritersAndReadersAtOnceNeverSeeATornEvent) {
  EventRing ring(16);  // small, so that writers lap each other
  constexpr uint64_t kEach = 20000;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> torn{0};
  std::thread reader([&] {
    while (!stop.load()) {
      for (const auto& [index, event] : ring.read())
        if (event.time_ns != event.op.bytes || event.op.sequence != event.op.bytes) ++torn;
    }
  });
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      for (uint64_t i = 0; i < kEach; ++i) ring.record(event_of(w * kEach + i));
    });
  for (auto& writer : writers) writer.join();
  stop.store(true);
  reader.join();
  EXPECT_EQ(torn.load(), 0u);
  EXPECT_EQ(ring.recorded(), 4 * kEach);
}

TEST(EventRing, RemembersTheNamesOfTheFirstCommunicatorsAndOfTheLast) {
  EventRing ring(2);
  const auto first = ring.add_communicator({.name = "first"});
  uint32_t last = 0, before = 0;
  for (int i = 0; i < 5000; ++i) {
    before = last;
    last = ring.add_communicator({.name = "c" + std::to_string(i)});
  }
  EXPECT_EQ(ring.communicator_name(first), "first");
  EXPECT_EQ(ring.communicator_name(last), "c4999");
  EXPECT_EQ(ring.communicator_name(before), "") << "pushed out, and never another one's name";
  EXPECT_EQ(ring.communicator_name(last + 1), "");
}

TEST(EventRing, WhatIsPushedOutIsNotOpenForEver) {
  EventRing ring(2);
  for (size_t i = 1; i < kCommRows; ++i) ring.add_communicator({.name = "c", .rank = 0, .size = 1});
  const auto last = ring.add_communicator({.name = "last", .rank = 0, .size = 2});
  EXPECT_EQ(ring.header().open_communicators.load(), 1);
  ring.add_communicator({.name = "another", .rank = 0, .size = 1});
  EXPECT_EQ(ring.communicator_name(last), "");
  EXPECT_EQ(ring.header().open_communicators.load(), 0);
  ring.end_communicator(last, true);
  EXPECT_EQ(ring.header().open_communicators.load(), 0);
}

TEST(EventRing, CommunicatorsThatLiveStayAndThoseThatEndedGo) {
  EventRing ring(2);
  const auto world = ring.add_communicator({.name = "world", .rank = 1, .size = 4});
  for (int i = 0; i < 5000; ++i)
    ring.end_communicator(ring.add_communicator({.name = "part", .rank = 0, .size = 2}), true);
  EXPECT_EQ(ring.communicator_name(world), "world");
  EXPECT_EQ(ring.header().open_communicators.load(), 1);
  ring.end_communicator(world, true);
  ring.end_communicator(world, true);
  EXPECT_EQ(ring.header().open_communicators.load(), 0);
}

TEST(EventRing, TheFirstConnectedCommunicatorSaysWhoThisIs) {
  EventRing ring(2);
  ring.add_communicator({.name = "unconnected"});
  EXPECT_EQ(ring.header().rank.load(), -1);
  ring.add_communicator({.name = "odd", .rank = 1, .size = 2, .members = {1, 3}});
  ring.add_communicator({.name = "later", .rank = 0, .size = 1, .members = {0}});
  EXPECT_EQ(ring.header().rank.load(), 3);
}

TEST(EventRing, APartOfTheJobHasTheProcesssRankInTheJob) {
  EventRing ring(4);
  ring.add_communicator({.name = "part", .rank = 0, .size = 2, .global_rank = 3});
  EXPECT_EQ(ring.header().rank.load(), 3);
}

TEST(EventRing, WhatIsBeingMadeCountsAsOpenAndSaysNotWhoThisIs) {
  EventRing ring(2);
  const auto init_record =
      ring.add_communicator({.name = "made", .rank = 2, .size = 4, .is_initializing = true});
  EXPECT_EQ(ring.header().open_communicators.load(), 1);
  EXPECT_EQ(ring.header().rank.load(), -1);
  ring.end_communicator(init_record, true);
  EXPECT_EQ(ring.header().open_communicators.load(), 0);
}

TEST(EventRing, MakingsThatEndedGoBeforeCommunicatorsThatEnded) {
  EventRing ring(2);
  const auto first = ring.add_communicator({.name = "first"});
  ring.end_communicator(first, true);
  for (int i = 0; i < 5000; ++i)
    ring.end_communicator(
        ring.add_communicator({.name = "made", .size = 2, .is_initializing = true}), true);
  EXPECT_EQ(ring.communicator_name(first), "first");
}

TEST(EventRing, AnEntryIsNotedInTheBeginAsLongAsItIsThere) {
  EventRing ring(4);
  const auto first = ring.record(event_of(1));
  ring.mark_started(first, 77);
  EXPECT_EQ(ring.read().at(0).event.started_ns, 77u);
  for (uint64_t i = 0; i < 4; ++i) ring.record(event_of(i));
  ring.mark_started(first, 78);
  for (const auto& [index, event] : ring.read()) EXPECT_EQ(event.started_ns, 0u) << index;
}

}  // namespace
}  // namespace torch::comms::tracing
