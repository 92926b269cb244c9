#include "transport/connect/handshake_queue.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace torch::comms::transport {
namespace {

// A connection as a number: who has spoken is in a set.
struct Caller {
  std::unique_ptr<int> number;  // movable, no more
  int socket() const { return *number; }
};

struct Hall {
  std::set<int> spoken = {};
  int settled = 0;
  HandshakeQueue<Caller> guests{[this](Caller& caller) {
    const bool settles = spoken.contains(caller.socket());
    settled += settles ? 1 : 0;
    return settles;
  }};
  static constexpr int kMost = static_cast<int>(HandshakeQueue<Caller>::kMaxWaiting);

  // The number of who has to leave for it; -1: nobody.
  int come(int number) {
    const auto out = guests.add({std::make_unique<int>(number)});
    return out ? out->socket() : -1;
  }
  auto waiting() const { return std::distance(guests.begin(), guests.end()); }
};

TEST(Guests, ThoseThatSayAtOnceWhoTheyAreMakeNoRoomHoweverManyComeAtOnce) {
  Hall hall;
  for (int i = 0; i < 10 * Hall::kMost; ++i) {
    hall.spoken.insert(i);
    EXPECT_EQ(hall.come(i), -1);
  }
  EXPECT_EQ(hall.settled, 10 * Hall::kMost);
  EXPECT_EQ(hall.waiting(), 0);
}

TEST(Guests, OfThoseThatSayNothingTheOldestMakesRoom) {
  Hall hall;
  for (int i = 0; i < Hall::kMost; ++i) EXPECT_EQ(hall.come(i), -1);
  EXPECT_EQ(hall.come(1000), 0);
  EXPECT_EQ(hall.come(1001), 1);
  EXPECT_EQ(hall.waiting(), Hall::kMost);
}

TEST(Guests, WhoHasSpokenMeanwhileIsLetInInsteadOfMakingRoom) {
  Hall hall;
  for (int i = 0; i < Hall::kMost; ++i) EXPECT_EQ(hall.come(i), -1);
  hall.spoken.insert(0);
  EXPECT_EQ(hall.come(1000), -1);
  EXPECT_EQ(hall.settled, 1);
}

TEST(Guests, AreHeardByTheirSocketOrAllOfThem) {
  Hall hall;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(hall.come(i), -1);
  EXPECT_FALSE(hall.guests.poll_socket(3));
  hall.spoken = {1, 3, 4};
  EXPECT_TRUE(hall.guests.poll_socket(3));
  EXPECT_FALSE(hall.guests.poll_socket(3)) << "it is none any more";
  EXPECT_FALSE(hall.guests.poll_socket(77));
  hall.guests.poll_all();
  EXPECT_EQ(hall.settled, 3);
  EXPECT_EQ(hall.guests.begin()->socket(), 0);
  EXPECT_EQ(hall.waiting(), 2);
}

}  // namespace
}  // namespace torch::comms::transport
