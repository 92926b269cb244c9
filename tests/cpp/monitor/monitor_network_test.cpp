#include "monitor/monitor_network.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <csignal>
#include <functional>

#include "base/net/socket.hpp"
#include "transport/byte_stream.hpp"

// The side channel over sockets: ranks are threads, each with a family of its own.
namespace torch::comms::monitor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A thread that does nothing from hold() to release_store(), as one of a process that is stopped.
// One at a time.
class HeldThread {
 public:
  HeldThread() {
    inside = false;
    EXPECT_EQ(::pipe(ends.data()), 0);
    struct sigaction hold = {};
    hold.sa_handler = [](int) {
      inside = true;
      char byte = 0;
      static_cast<void>(::read(ends[0], &byte, 1));
    };
    hold.sa_flags = SA_RESTART;
    EXPECT_EQ(::sigaction(SIGUSR2, &hold, nullptr), 0);
  }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;

  void hold(pid_t thread) {
    ::tgkill(::getpid(), thread, SIGUSR2);
    while (!inside) std::this_thread::yield();
  }
  void let_go() { ::close(ends[1]); }  // not the other end, which that thread reads

 private:
  static inline std::atomic<bool> inside{false};
  static inline std::array<int, 2> ends{};
};

struct Page final : CollectiveLogReader {
  std::atomic<uint64_t> called{1};
  std::atomic<int64_t> count{10};
  mutable std::atomic<pid_t> looker{0};  // who has looked last
  std::atomic<HeldThread*> held{nullptr};
  // Thread that `held` holds at the next look of another one, which has the family's lock; 0: none.
  mutable std::atomic<pid_t> to_hold{0};

  void look() const {
    looker = ::gettid();
    if (auto* const with = held.load(); with != nullptr && to_hold != looker)
      if (const pid_t thread = to_hold.exchange(0); thread != 0) with->hold(thread);
  }
  uint64_t first_incomplete() const override {
    look();
    return called;
  }
  RankStatus status_of(uint64_t number) const override {
    look();
    RankStatus answer;
    answer.progress.called = called;
    if (number == 0 || number > called) return answer;
    answer.fingerprints[0].sequence = number;
    answer.fingerprints[0].count = count;
    return answer;
  }
};

struct Rank {
  int rank;
  std::barrier<>& all;
  std::vector<std::string>& blobs;
  std::shared_ptr<Page> page = std::make_shared<Page>();
  std::shared_ptr<GroupMonitor> circle = {};

  void meet() const { all.arrive_and_wait(); }
  // The first failure, when it comes.
  GroupMonitor::GroupFailure failure() const {
    while (!circle->has_failure()) circle->wait_consistent(UINT64_MAX, milliseconds(20));
    return *circle->failure();
  }
};

void run(int size, const std::function<void(Rank&)>& body) {
  std::vector<std::string> blobs(static_cast<size_t>(size));
  std::barrier all(size);
  const auto secret = base::random_secret();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Rank self{rank, all, blobs};
      const auto tell_all = [&](std::string mine) {
        blobs[static_cast<size_t>(rank)] = std::move(mine);
        self.meet();
        auto told = blobs;
        self.meet();
        return MonitorNetwork::MonitorExchangeResult{std::move(told), secret};
      };
      self.circle = MonitorNetwork::make(rank, size, "127.0.0.1", tell_all)->world_group(self.page);
      body(self);
    });
  for (auto& thread : threads) thread.join();
}

TEST(Family, WhoLeavesInGoodOrderIsMissedByNobody) {
  run(5, [](Rank& self) {
    if (self.rank == 2) self.circle->close(), self.circle.reset();
    self.meet();
    if (self.circle) {
      while (!self.circle->query_progress())
        self.circle->wait_consistent(UINT64_MAX, milliseconds(5));
      EXPECT_NE(self.circle->query_progress()->text.find("rank 2: it has closed"),
                std::string::npos)
          << self.circle->query_progress()->text;
      EXPECT_FALSE(self.circle->failure());
    }
    self.meet();
    if (self.circle) self.circle->close();
  });
}

// Ranks 0 and 3 of 5 are no neighbours.
TEST(Family, WhoDepartsTellsAllAndHearsOfAllOthers) {
  for (const bool one_by_one : {true, false})
    run(5, [&](Rank& self) {
      const std::vector<PostedCounts> posted(5, {.sends = static_cast<uint64_t>(self.rank) + 1});
      for (int rank = 0; rank < 5; ++rank) {
        if (rank == self.rank) self.circle->announce_close(posted, /*tells_all=*/true);
        if (one_by_one) self.meet();
      }
      while (self.circle->peer_closes().size() < 4) self.circle->wait_for_failure(milliseconds(1));
      EXPECT_TRUE(self.circle->has_peer_closes());
      for (const auto& [rank, departure] : self.circle->peer_closes()) {
        ASSERT_TRUE(departure.posted);
        EXPECT_EQ(departure.posted->sends, static_cast<uint64_t>(rank) + 1);
      }
      EXPECT_FALSE(self.circle->failure());
      self.meet();
      self.circle->close();
      self.meet();
      EXPECT_FALSE(self.circle->failure());
    });
}

TEST(Family, AnEndIsToldToAllAtOnce) {
  run(6, [](Rank& self) {
    self.meet();
    const auto began = std::chrono::steady_clock::now();
    if (self.rank == 4) {
      self.circle.reset();
    } else {
      const auto failure = self.failure();
      EXPECT_EQ(failure.code, Errc::kPeerFailed);
      EXPECT_EQ(failure.culprits, std::vector{4});
      EXPECT_NE(
          failure.reason.find("rank 4 has failed: its process (" + std::to_string(::getpid())),
          std::string::npos)
          << failure.reason;
      EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));  // some milliseconds
    }
    self.meet();
    if (self.circle) self.circle->close();
  });
}

TEST(Family, WhatAStoppedRankHasNotHeardItHearsBeforeItGoesOn) {
  HeldThread held;
  run(2, [&](Rank& self) {
    self.meet();
    if (self.rank == 0)
      while (!self.circle->query_progress())
        self.circle->wait_consistent(UINT64_MAX, milliseconds(5));
    self.meet();
    if (self.rank == 1) {
      self.page->to_hold = self.page->looker.load();  // the thread that has answered
      self.page->held = &held;
      self.circle->start_consistency_check(
          1);  // looks with the lock, which that thread cannot have then
    }
    self.meet();
    if (self.rank == 0) {
      EXPECT_TRUE(self.circle->announce_abort({Errc::kTimeout, "too late", {1}}));
      self.circle->wait_abort_acknowledged(milliseconds(0));
    }
    self.meet();
    if (self.rank == 1) {
      EXPECT_FALSE(self.circle->has_failure());
      while (!self.circle->has_failure()) self.circle->drain_incoming();
      EXPECT_EQ(self.circle->failure()->code, Errc::kTimeout);
      EXPECT_NE(self.circle->failure()->abort_known_since, kNever);
      held.let_go();
    }
    self.meet();
    self.circle->close();
  });
}

TEST(Family, GroupsOfAFamilyFailApart) {
  run(4, [](Rank& self) {
    const bool odd = self.rank % 2 != 0;
    const auto ranks = odd ? std::vector{3, 1} : std::vector{0, 2};
    auto half = self.circle->split(ranks, 1, self.page);
    self.meet();
    if (self.rank == 3) half.reset();
    if (self.rank == 1) {
      while (!half->has_failure()) half->wait_consistent(UINT64_MAX, milliseconds(5));
      EXPECT_EQ(half->failure()->culprits, std::vector{0});  // by rank of the group
    }
    self.meet();
    if (half) {
      EXPECT_EQ(half->has_failure(), self.rank == 1);
    }
    EXPECT_FALSE(self.circle->failure());
    self.meet();
    if (half) half->close();
    self.circle->close();
  });
}

TEST(Family, ACheckWaitsForAllAndFindsADifference) {
  run(3, [](Rank& self) {
    self.circle->start_consistency_check(1);
    while (!self.circle->wait_consistent(1, milliseconds(50))) ASSERT_FALSE(self.circle->failure());
    self.page->called = 2;
    if (self.rank == 1) self.page->count = 11;
    self.meet();
    self.circle->start_consistency_check(2);
    const auto failure = self.failure();
    EXPECT_EQ(failure.code, Errc::kMismatch);
    EXPECT_EQ(failure.culprits, std::vector{1});
    EXPECT_FALSE(self.circle->wait_consistent(2, milliseconds(0)));
    self.meet();
    self.circle->close();
  });
}

// Strangers that come by: one that says nothing, one of another job, one that only looks.
TEST(Family, WhoeverKnowsOfADisagreementLearnsWhoseItIsAndAllAreTold) {
  run(4, [](Rank& self) {
    self.meet();
    if (self.rank == 1) {
      EXPECT_FALSE(self.circle->find_mismatch(milliseconds(0), milliseconds(1)))
          << "all call the same";
    }
    self.meet();
    if (self.rank == 2) self.page->count = 20;
    self.meet();
    if (self.rank == 0) {
      // The question before may be under way still.
      std::optional<GroupMonitor::GroupFailure> found;
      while (!found) found = self.circle->find_mismatch(milliseconds(0), milliseconds(100));
      EXPECT_EQ(found->culprits, std::vector{2});
    }
    const auto failure = self.failure();
    EXPECT_EQ(failure.code, Errc::kMismatch);
    EXPECT_EQ(failure.culprits, std::vector{2});
    self.meet();
    self.circle->close();
  });
}

TEST(Family, StrangersAreTurnedAway) {
  run(3, [](Rank& self) {
    transport::ByteReader reader(self.blobs[static_cast<size_t>(self.rank)], "its own blob");
    const auto instance = reader.number<uint64_t>();
    static_cast<void>(reader.text());
    const auto address = base::parse_address(reader.text());
    ASSERT_TRUE(address);
    std::vector<base::FileDescriptor> strangers;
    for (int i = 0; i < 100; ++i) {
      auto socket = base::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(socket.get(), address->get(), address->size), 0);
      transport::tcp::TcpHello hello;
      hello.from = 0;
      hello.to = self.rank;
      hello.instance = instance;  // but not the job's secret
      if (i % 3 != 0) static_cast<void>(::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL));
      if (i % 3 != 1) strangers.push_back(std::move(socket));
    }
    self.circle->start_consistency_check(1);
    while (!self.circle->wait_consistent(1, milliseconds(50))) ASSERT_FALSE(self.circle->failure());
    self.meet();
    self.circle->close();
  });
}

}  // namespace
}  // namespace torch::comms::monitor
