#include "transport/nvl/unix_allgather.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torchcomms/base/error.hpp>

namespace torch::comms::transport::nvl {
namespace {

class CircleTest : public testing::Test {
 protected:
  void make(int size) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) {
      gathers_.push_back(std::make_unique<UnixAllGather>(rank, size));
      addresses.push_back(gathers_.back()->address());
    }
    for (const auto& gather : gathers_) gather->set_addresses(addresses);
  }
  // Runs body(gather, rank) on a thread each.
  template <class Body>
  void on_threads(Body body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < gathers_.size(); ++rank)
      threads.emplace_back([&, rank] { body(*gathers_[rank], static_cast<int>(rank)); });
    for (auto& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<UnixAllGather>> gathers_;
};

Errc code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& e) {
    return e.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Errc::kInternal;
}

TEST_F(CircleTest, EachRoundBringsTheWordsOfAllToAll) {
  make(4);
  on_threads([](UnixAllGather& gather, int rank) {
    for (int round = 0; round < 50; ++round) {
      const auto all = gather.all_gather(std::string(static_cast<size_t>(rank * round), 'x') + "!");
      ASSERT_EQ(all.size(), 4u);
      for (size_t peer = 0; peer < all.size(); ++peer)
        EXPECT_EQ(all[peer].size(), peer * static_cast<size_t>(round) + 1);
    }
  });
}

TEST_F(CircleTest, ARoundThatAnotherRankBeginsWakesThoseThatWait) {
  make(3);
  on_threads([](UnixAllGather& gather, int rank) {
    for (int round = 0; round < 3; ++round) {
      if (rank != round)
        while (!gather.is_round_started()) gather.wait();
      EXPECT_EQ(gather.all_gather(std::to_string(rank)), (std::vector<std::string>{"0", "1", "2"}));
      EXPECT_FALSE(gather.is_round_started() && round == 2);
    }
  });
}

TEST_F(CircleTest, ARankThatHasEndedIsNamed) {
  make(3);
  std::barrier barrier(2);
  on_threads([&](UnixAllGather& gather, int rank) {
    if (rank == 1) {  // after a round of its own
      gather.all_gather("");
      gathers_[1].reset();
      return;
    }
    gather.all_gather("");
    try {
      gather.all_gather("");
      ADD_FAILURE() << "rank 1 has ended";
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kPeerFailed);
      EXPECT_EQ(e.context().peer, 1) << e.what();
      gather.announce_leave(e.context().peer);
    }
    barrier.arrive_and_wait();
  });
}

TEST_F(CircleTest, ARankThatHasEndedBeforeAnyRoundIsNamed) {
  make(2);
  gathers_[1].reset();
  EXPECT_EQ(code_of([&] { gathers_[0]->all_gather(""); }), Errc::kPeerFailed);
}

TEST_F(CircleTest, StopEndsARound) {
  make(2);
  std::thread stopper([&] { gathers_[0]->stop(); });
  EXPECT_EQ(code_of([&] { gathers_[0]->all_gather(""); }), Errc::kAborted);
  stopper.join();
}

TEST_F(CircleTest, StrangersAreNotHeard) {
  make(2);
  UnixAllGather foreign(1, 2);  // says that it is rank 1, and knows nobody's secret
  UnixAllGather other(0, 2);
  // The place of rank 0 of this gather, with the secret of another one.
  auto forged = gathers_[0]->address();
  const auto secret = other.address();
  forged.replace(8, sizeof(base::Secret), secret, 8, sizeof(base::Secret));
  foreign.set_addresses({forged, foreign.address()});
  std::thread foreign_thread(
      [&] { EXPECT_NE(code_of([&] { foreign.all_gather("wrong"); }), Errc::kInternal); });
  std::thread peer([&] { EXPECT_EQ(gathers_[1]->all_gather("right").front(), "right, too"); });
  EXPECT_EQ(gathers_[0]->all_gather("right, too").back(), "right");
  peer.join();
  foreign.stop();
  foreign_thread.join();
}

TEST_F(CircleTest, WordsThatAreNoAddressAreRefused) {
  UnixAllGather gather(0, 2);
  EXPECT_EQ(code_of([&] { gather.set_addresses({gather.address(), "nonsense"}); }), Errc::kSystem);
  EXPECT_EQ(code_of([&] { gather.set_addresses({gather.address(), gather.address()}); }),
            Errc::kSystem);
}

}  // namespace
}  // namespace torch::comms::transport::nvl
