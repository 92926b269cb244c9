#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ctran/team/member.hpp"

// Messages of a team, over the stand-in's kernels.
namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::KernelMessage;
using kernels::StopReason;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;
using Bytes = std::vector<std::byte>;

using test::cpu;

class MessagesTest : public test::KernelsTest {};

// What message `serial` from one rank to another holds.
Bytes sample(int from, int to, size_t serial, size_t bytes) {
  Bytes data(bytes);
  uint32_t state = static_cast<uint32_t>(from * 8 + to + 1) * 2654435761u +
                   static_cast<uint32_t>(serial) * 40503u;
  for (auto& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

// A rank, and messages that are to be exchanged.
class Member : public test::TeamMember {
 public:
  using TeamMember::TeamMember;
  ~Member() { cpu.synchronize(stream); }  // before the memory of its messages goes

  void send(int peer, size_t serial, size_t bytes) {
    add(peer, false, sample(rank, peer, serial, bytes), {});
  }
  void receive(int peer, size_t serial, size_t bytes) {
    add(peer, true, Bytes(bytes, std::byte{0xee}), sample(peer, rank, serial, bytes));
  }
  void launch(uint64_t limit_ns = 0) { team->exchange(messages_, limit_ns, stream); }
  void finish() { cpu.synchronize(stream); }
  void check() const {
    require(!team->failure(), "nothing stopped");
    for (const auto& one : all_)
      if (one->receives) require(one->data == one->wanted, "what was sent has come");
  }
  void forget() { all_.clear(), messages_.clear(); }
  void run() {
    launch();
    finish();
    check();
    forget();
  }

 private:
  struct One {
    bool receives;
    Bytes data, wanted;
  };

  void add(int peer, bool receives, Bytes data, Bytes wanted) {
    all_.push_back(std::make_unique<One>(One{receives, std::move(data), std::move(wanted)}));
    auto& memory = all_.back()->data;
    messages_.push_back(
        {memory.empty() ? nullptr : memory.data(), memory.size(), peer, receives ? 1 : 0});
  }

  std::vector<std::unique_ptr<One>> all_;
  std::vector<KernelMessage> messages_;
};

constexpr size_t kSizes[] = {0, 1, 7, 1000, 262144, 262145, 1000000};

TEST_F(MessagesTest, PairsTalkWhileOthersDoNot) {
  on_threads(4, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 4, exchange);
    size_t serial = 0;
    for (const size_t bytes : kSizes) {
      if (rank == 0) member.send(3, serial, bytes);
      if (rank == 3) member.receive(0, serial, bytes);
      member.run();
      // Both at once.
      if (rank == 1 || rank == 2) {
        member.send(3 - rank, serial, bytes);
        member.receive(3 - rank, serial, bytes);
        member.run();
      }
      ++serial;
    }
    exchange("");
  });
}

TEST_F(MessagesTest, GoRoundARing) {
  EXPECT_EQ(on_processes(5,
                         [](int rank, const AllGatherStrings& exchange) {
                           Member member(rank, 5, exchange);
                           for (size_t serial = 0; serial < 20; ++serial) {
                             const size_t bytes = kSizes[serial % std::size(kSizes)];
                             member.send((rank + 1) % 5, serial, bytes);
                             member.receive((rank + 4) % 5, serial, bytes);
                             member.run();
                           }
                           exchange("");
                         }),
            0);
}

TEST_F(MessagesTest, OfAllToAllHaveAnySize) {
  EXPECT_EQ(on_processes(4,
                         [](int rank, const AllGatherStrings& exchange) {
                           Member member(rank, 4, exchange);
                           std::mt19937_64 random(3);  // alike on all
                           for (size_t serial = 0; serial < 5; ++serial) {
                             for (int from = 0; from < 4; ++from)
                               for (int to = 0; to < 4; ++to) {
                                 const size_t bytes = random() % (size_t{1} << (random() % 21));
                                 if (from == to) continue;
                                 if (from == rank) member.send(to, serial, bytes);
                                 if (to == rank) member.receive(from, serial, bytes);
                               }
                             member.run();
                           }
                           exchange("");
                         }),
            0);
}

TEST_F(MessagesTest, MayBeMoreThanALaunchHolds) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    for (size_t serial = 0; serial < 1000; ++serial) member.send(1 - rank, serial, serial % 300);
    for (size_t serial = 0; serial < 1000; ++serial) member.receive(1 - rank, serial, serial % 300);
    member.run();
    exchange("");
  });
}

// One side's list is the other's single calls.
TEST_F(MessagesTest, MatchInTheOrderOfTheLaunches) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    for (size_t serial = 0; serial < 6; ++serial) {
      const size_t bytes = 100 + serial;
      if (rank == 0)
        member.send(1, serial, bytes);
      else
        member.receive(0, serial, bytes);
      if (rank == 1) member.run();
    }
    if (rank == 0) member.run();
    exchange("");
  });
}

// Collectives count their launches; messages of some ranks do not bring them out of step.
TEST_F(MessagesTest, LeaveCollectivesAlone) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    for (size_t serial = 0; serial < 10; ++serial) {
      if (rank == 0) member.send(2, serial, 5000);
      if (rank == 2) member.receive(0, serial, 5000);
      std::vector<float> values(100, 1);
      kernels::KernelCall call{};
      call.dtype = Dtype::kFloat32;
      call.count = values.size();
      call.input = call.output = values.data();
      member.launch();
      member.team->launch(call, member.stream);
      member.finish();
      member.check();
      member.forget();
      require(values[99] == 3, "a sum of ones");
    }
    exchange("");
  });
}

TEST_F(MessagesTest, OfACaptureAreRepeated) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    member.send(1 - rank, 0, 300000);
    member.receive(1 - rank, 0, 300000);
    member.send(1 - rank, 1, 0);
    member.receive(1 - rank, 1, 0);
    gpu::cpu_begin_capture(member.stream);
    member.launch();
    const auto graph = gpu::cpu_end_capture(member.stream);
    for (int replay = 0; replay < 20; ++replay) gpu::cpu_launch_graph(graph, member.stream);
    member.finish();
    member.check();
    exchange("");
  });
}

TEST_F(MessagesTest, EndAtTheirLimitAndTellWhomTheyWaitedFor) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    if (rank != 2) {
      for (const int peer : {1 - rank, 2}) {
        member.send(peer, 0, 600000);
        member.receive(peer, 0, 600000);
      }
      member.launch(200'000'000);
      member.finish();
      const auto stopped = member.team->failure();
      ASSERT_TRUE(stopped);
      EXPECT_EQ(stopped->reason, StopReason::kTimeout);
      EXPECT_EQ(stopped->collective, Collective::kExchange);
      EXPECT_EQ(stopped->waited_for, 2);
      EXPECT_EQ(stopped->launch, 1u);
      // Later ones end as well, though they have no limit.
      member.launch();
      member.finish();
    }
    exchange("");
  });
}

void expect_mismatch(size_t sent, size_t received) {
  on_threads(3, [&](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    // The other rank and the other direction would wait for ever.
    member.receive((rank + 1) % 3, 7, 10);
    if (rank == 0) member.send(1, 0, sent);
    if (rank == 1) member.receive(0, 0, received);
    if (rank != 2) {
      member.launch();
      member.finish();
      const auto stopped = member.team->failure();
      ASSERT_TRUE(stopped);
      EXPECT_EQ(stopped->reason, StopReason::kSizeMismatch);
      EXPECT_EQ(stopped->collective, Collective::kExchange);
      EXPECT_EQ(stopped->waited_for, 1 - rank);
    }
    exchange("");
  });
}

TEST_F(MessagesTest, OfTheWrongSizeStopBothSides) {
  expect_mismatch(100, 99);
  expect_mismatch(0, 1);
  expect_mismatch(1, 0);
  expect_mismatch(600000, 10);
  expect_mismatch(10, 600000);
}

// A send that is over when its receive finds the wrong size: the next launch stops.
TEST_F(MessagesTest, OfTheWrongSizeStopWhatTheSenderDoesNext) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 0) {
      member.send(1, 0, 100);
      member.run();
      exchange("sent");
      exchange("received");
      std::vector<float> values(10, 1);
      kernels::KernelCall call{};
      call.dtype = Dtype::kFloat32;
      call.count = values.size();
      call.input = call.output = values.data();
      member.team->launch(call, member.stream);
      member.finish();
    } else {
      exchange("sent");
      member.receive(0, 0, 101);
      member.launch();
      member.finish();
      exchange("received");
    }
    ASSERT_TRUE(member.team->failure());
    EXPECT_EQ(member.team->failure()->reason, StopReason::kSizeMismatch);
    EXPECT_EQ(member.team->failure()->waited_for, 1 - rank);
    exchange("");
  });
}

TEST_F(MessagesTest, AreAborted) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 0) {
      member.receive(1, 0, 10);
      member.launch();
      EXPECT_FALSE(member.team->failure());
      member.team->abort();
      member.finish();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kAborted);
      EXPECT_EQ(member.team->failure()->collective, Collective::kExchange);
    }
    exchange("");
  });
}

TEST_F(MessagesTest, ThatMakeNoSenseAreRefusedBeforeAnyIsLaunched) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    std::byte one{};
    const auto why = [&](const KernelMessage& message) -> std::string {
      std::vector<KernelMessage> messages(200, KernelMessage{&one, 1, 1 - rank, 0});
      messages.push_back(message);
      try {
        member.team->exchange(messages, 0, member.stream);
      } catch (const CommError& e) {
        EXPECT_EQ(e.code(), Errc::kInvalidArgument);
        return e.why();
      }
      return "";
    };
    EXPECT_NE(why({&one, 1, rank, 0}).find("a send to rank " + std::to_string(rank)),
              std::string::npos);
    EXPECT_NE(why({&one, 1, 2, 1}).find("a receive from rank 2"), std::string::npos);
    EXPECT_NE(why({&one, 1, -1, 1}).find("rank -1"), std::string::npos);
    EXPECT_NE(why({nullptr, 9, 1 - rank, 1}).find("9 bytes"), std::string::npos);
    member.run();  // nothing
    kernels::KernelCall call{};
    call.collective = Collective::kExchange;
    call.dtype = Dtype::kUInt8;
    EXPECT_FALSE(member.team->can_launch(call));
    exchange("");
  });
}

}  // namespace
}  // namespace torch::comms::ctran
