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

// The side channel over sockets: ranks are threads, each with a network of its own.
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

struct TestLog final : CollectiveLogReader {
  std::atomic<uint64_t> called{1};
  std::atomic<int64_t> count{10};
  mutable std::atomic<pid_t> last_reader{0};  // thread that has read last
  std::atomic<HeldThread*> holder{nullptr};
  // Thread that `holder` holds at the next read of another one, which has the network's lock; 0:
  // none.
  mutable std::atomic<pid_t> to_hold{0};

  void on_read() const {
    last_reader = ::gettid();
    if (auto* const holding = holder.load(); holding != nullptr && to_hold != last_reader)
      if (const pid_t thread = to_hold.exchange(0); thread != 0) holding->hold(thread);
  }
  uint64_t first_incomplete() const override {
    on_read();
    return called;
  }
  RankStatus status_of(uint64_t number) const override {
    on_read();
    RankStatus status;
    status.progress.called = called;
    if (number == 0 || number > called) return status;
    status.fingerprints[0].sequence = number;
    status.fingerprints[0].count = count;
    return status;
  }
};

struct Rank {
  int rank;
  std::barrier<>& all;
  std::vector<std::string>& blobs;
  std::shared_ptr<TestLog> log = std::make_shared<TestLog>();
  std::shared_ptr<GroupMonitor> group_monitor = {};

  void barrier() const { all.arrive_and_wait(); }
  // The first failure, when it comes.
  GroupMonitor::GroupFailure failure() const {
    while (!group_monitor->has_failure())
      group_monitor->wait_consistent(UINT64_MAX, milliseconds(20));
    return *group_monitor->failure();
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
      const auto exchange = [&](std::string mine) {
        blobs[static_cast<size_t>(rank)] = std::move(mine);
        self.barrier();
        auto all_blobs = blobs;
        self.barrier();
        return MonitorNetwork::MonitorExchangeResult{std::move(all_blobs), secret};
      };
      self.group_monitor =
          MonitorNetwork::make(rank, size, "127.0.0.1", exchange)->world_group(self.log);
      body(self);
    });
  for (auto& thread : threads) thread.join();
}

TEST(Family, WhoLeavesInGoodOrderIsMissedByNobody) {
  run(5, [](Rank& self) {
    if (self.rank == 2) self.group_monitor->close(), self.group_monitor.reset();
    self.barrier();
    if (self.group_monitor) {
      while (!self.group_monitor->query_progress())
        self.group_monitor->wait_consistent(UINT64_MAX, milliseconds(5));
      EXPECT_NE(self.group_monitor->query_progress()->text.find("rank 2: it has closed"),
                std::string::npos)
          << self.group_monitor->query_progress()->text;
      EXPECT_FALSE(self.group_monitor->failure());
    }
    self.barrier();
    if (self.group_monitor) self.group_monitor->close();
  });
}

// Ranks 0 and 3 of 5 are no neighbours.
TEST(Family, WhoDepartsTellsAllAndHearsOfAllOthers) {
  for (const bool one_by_one : {true, false})
    run(5, [&](Rank& self) {
      const std::vector<PostedCounts> posted(5, {.sends = static_cast<uint64_t>(self.rank) + 1});
      for (int rank = 0; rank < 5; ++rank) {
        if (rank == self.rank) self.group_monitor->announce_close(posted, /*to_all_ranks=*/true);
        if (one_by_one) self.barrier();
      }
      while (self.group_monitor->peer_closes().size() < 4)
        self.group_monitor->wait_for_failure(milliseconds(1));
      EXPECT_TRUE(self.group_monitor->has_peer_closes());
      for (const auto& [rank, peer_close] : self.group_monitor->peer_closes()) {
        ASSERT_TRUE(peer_close.posted);
        EXPECT_EQ(peer_close.posted->sends, static_cast<uint64_t>(rank) + 1);
      }
      EXPECT_FALSE(self.group_monitor->failure());
      self.barrier();
      self.group_monitor->close();
      self.barrier();
      EXPECT_FALSE(self.group_monitor->failure());
    });
}

TEST(Family, AnEndIsToldToAllAtOnce) {
  run(6, [](Rank& self) {
    self.barrier();
    const auto began = std::chrono::steady_clock::now();
    if (self.rank == 4) {
      self.group_monitor.reset();
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
    self.barrier();
    if (self.group_monitor) self.group_monitor->close();
  });
}

TEST(Family, WhatAStoppedRankHasNotHeardItHearsBeforeItGoesOn) {
  HeldThread holder;
  run(2, [&](Rank& self) {
    self.barrier();
    if (self.rank == 0)
      while (!self.group_monitor->query_progress())
        self.group_monitor->wait_consistent(UINT64_MAX, milliseconds(5));
    self.barrier();
    if (self.rank == 1) {
      self.log->to_hold = self.log->last_reader.load();  // the thread that has answered
      self.log->holder = &holder;
      self.group_monitor->start_consistency_check(
          1);  // reads with the lock, which that thread cannot have then
    }
    self.barrier();
    if (self.rank == 0) {
      EXPECT_TRUE(self.group_monitor->announce_abort({Errc::kTimeout, "too late", {1}}));
      self.group_monitor->wait_abort_acknowledged(milliseconds(0));
    }
    self.barrier();
    if (self.rank == 1) {
      EXPECT_FALSE(self.group_monitor->has_failure());
      while (!self.group_monitor->has_failure()) self.group_monitor->drain_incoming();
      EXPECT_EQ(self.group_monitor->failure()->code, Errc::kTimeout);
      EXPECT_NE(self.group_monitor->failure()->abort_known_since, kNever);
      holder.let_go();
    }
    self.barrier();
    self.group_monitor->close();
  });
}

TEST(Family, GroupsOfAFamilyFailApart) {
  run(4, [](Rank& self) {
    const bool odd = self.rank % 2 != 0;
    const auto ranks = odd ? std::vector{3, 1} : std::vector{0, 2};
    auto half = self.group_monitor->split(ranks, 1, self.log);
    self.barrier();
    if (self.rank == 3) half.reset();
    if (self.rank == 1) {
      while (!half->has_failure()) half->wait_consistent(UINT64_MAX, milliseconds(5));
      EXPECT_EQ(half->failure()->culprits, std::vector{0});  // by rank of the group
    }
    self.barrier();
    if (half) {
      EXPECT_EQ(half->has_failure(), self.rank == 1);
    }
    EXPECT_FALSE(self.group_monitor->failure());
    self.barrier();
    if (half) half->close();
    self.group_monitor->close();
  });
}

TEST(Family, ACheckWaitsForAllAndFindsADifference) {
  run(3, [](Rank& self) {
    self.group_monitor->start_consistency_check(1);
    while (!self.group_monitor->wait_consistent(1, milliseconds(50)))
      ASSERT_FALSE(self.group_monitor->failure());
    self.log->called = 2;
    if (self.rank == 1) self.log->count = 11;
    self.barrier();
    self.group_monitor->start_consistency_check(2);
    const auto failure = self.failure();
    EXPECT_EQ(failure.code, Errc::kMismatch);
    EXPECT_EQ(failure.culprits, std::vector{1});
    EXPECT_FALSE(self.group_monitor->wait_consistent(2, milliseconds(0)));
    self.barrier();
    self.group_monitor->close();
  });
}

// Connections that are rejected: one that says nothing, one of another job, one that only connects.
TEST(Family, WhoeverKnowsOfADisagreementLearnsWhoseItIsAndAllAreTold) {
  run(4, [](Rank& self) {
    self.barrier();
    if (self.rank == 1) {
      EXPECT_FALSE(self.group_monitor->find_mismatch(milliseconds(0), milliseconds(1)))
          << "all call the same";
    }
    self.barrier();
    if (self.rank == 2) self.log->count = 20;
    self.barrier();
    if (self.rank == 0) {
      // The question before may be under way still.
      std::optional<GroupMonitor::GroupFailure> found;
      while (!found) found = self.group_monitor->find_mismatch(milliseconds(0), milliseconds(100));
      EXPECT_EQ(found->culprits, std::vector{2});
    }
    const auto failure = self.failure();
    EXPECT_EQ(failure.code, Errc::kMismatch);
    EXPECT_EQ(failure.culprits, std::vector{2});
    self.barrier();
    self.group_monitor->close();
  });
}

TEST(Family, StrangersAreTurnedAway) {
  run(3, [](Rank& self) {
    transport::ByteReader reader(self.blobs[static_cast<size_t>(self.rank)], "its own blob");
    const auto instance = reader.number<uint64_t>();
    static_cast<void>(reader.text());
    const auto address = base::parse_address(reader.text());
    ASSERT_TRUE(address);
    std::vector<base::FileDescriptor> rejected;
    for (int i = 0; i < 100; ++i) {
      auto socket = base::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(socket.get(), address->get(), address->size), 0);
      transport::tcp::TcpHello hello;
      hello.from = 0;
      hello.to = self.rank;
      hello.instance = instance;  // but not the job's secret
      if (i % 3 != 0) static_cast<void>(::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL));
      if (i % 3 != 1) rejected.push_back(std::move(socket));
    }
    self.group_monitor->start_consistency_check(1);
    while (!self.group_monitor->wait_consistent(1, milliseconds(50)))
      ASSERT_FALSE(self.group_monitor->failure());
    self.barrier();
    self.group_monitor->close();
  });
}

}  // namespace
}  // namespace torch::comms::monitor
