#include "transport/connect/handshake_queue.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace torch::comms::transport {
namespace {

// A connection as a number: who has spoken is in a set.
struct TestConnection {
  std::unique_ptr<int> number;  // movable, no more
  int socket() const { return *number; }
};

struct TestQueue {
  std::set<int> readable = {};
  int handled = 0;
  HandshakeQueue<TestConnection> queue{[this](TestConnection& connection) {
    const bool is_handled = readable.contains(connection.socket());
    handled += is_handled ? 1 : 0;
    return is_handled;
  }};
  static constexpr int kMaxWaiting = static_cast<int>(HandshakeQueue<TestConnection>::kMaxWaiting);

  // The number of who has to leave for it; -1: nobody.
  int add(int number) {
    const auto out = queue.add({std::make_unique<int>(number)});
    return out ? out->socket() : -1;
  }
  auto waiting() const { return std::distance(queue.begin(), queue.end()); }
};

TEST(Guests, ThoseThatSayAtOnceWhoTheyAreMakeNoRoomHoweverManyComeAtOnce) {
  TestQueue fixture;
  for (int i = 0; i < 10 * TestQueue::kMaxWaiting; ++i) {
    fixture.readable.insert(i);
    EXPECT_EQ(fixture.add(i), -1);
  }
  EXPECT_EQ(fixture.handled, 10 * TestQueue::kMaxWaiting);
  EXPECT_EQ(fixture.waiting(), 0);
}

TEST(Guests, OfThoseThatSayNothingTheOldestMakesRoom) {
  TestQueue fixture;
  for (int i = 0; i < TestQueue::kMaxWaiting; ++i) EXPECT_EQ(fixture.add(i), -1);
  EXPECT_EQ(fixture.add(1000), 0);
  EXPECT_EQ(fixture.add(1001), 1);
  EXPECT_EQ(fixture.waiting(), TestQueue::kMaxWaiting);
}

TEST(Guests, WhoHasSpokenMeanwhileIsLetInInsteadOfMakingRoom) {
  TestQueue fixture;
  for (int i = 0; i < TestQueue::kMaxWaiting; ++i) EXPECT_EQ(fixture.add(i), -1);
  fixture.readable.insert(0);
  EXPECT_EQ(fixture.add(1000), -1);
  EXPECT_EQ(fixture.handled, 1);
}

TEST(Guests, AreHeardByTheirSocketOrAllOfThem) {
  TestQueue fixture;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fixture.add(i), -1);
  EXPECT_FALSE(fixture.queue.poll_socket(3));
  fixture.readable = {1, 3, 4};
  EXPECT_TRUE(fixture.queue.poll_socket(3));
  EXPECT_FALSE(fixture.queue.poll_socket(3)) << "it is none any more";
  EXPECT_FALSE(fixture.queue.poll_socket(77));
  fixture.queue.poll_all();
  EXPECT_EQ(fixture.handled, 3);
  EXPECT_EQ(fixture.queue.begin()->socket(), 0);
  EXPECT_EQ(fixture.waiting(), 2);
}

}  // namespace
}  // namespace torch::comms::transport
