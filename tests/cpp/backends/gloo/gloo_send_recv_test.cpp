// Messages between ranks that are threads: order, limits, and who sees them off.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include <ATen/ATen.h>

#include "backends/gloo/samples.hpp"
#include "backends/gloo/world.hpp"

namespace torch::comms {
namespace {

using namespace gloo_test;

at::Tensor number(int value, int64_t count = 1) { return at::full({count}, value, at::kInt); }

TEST(Messages, ArriveInTheOrderOfTheCalls) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    constexpr int kCount = 50;
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < kCount; ++i) {
      tensors.push_back(rank == 0 ? number(i) : number(-1));
      works.push_back(rank == 0 ? comm.send(tensors[i], 1, true) : comm.recv(tensors[i], 0, true));
    }
    // Waited for in another order than they were posted.
    for (int i = kCount - 1; i >= 0; --i) works[i]->wait();
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(tensors[i].item<int>(), i);
  });
}

TEST(Messages, OfEveryDtypeAndNoElements) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    for (const auto dtype : {at::kBool, at::kUInt16, at::kComplexDouble, at::kFloat8_e5m2})
      for (const int64_t rows : {0, 3}) {
        auto tensor = rank == 0 ? sample(5, dtype, {rows, 2}) : at::empty({rows, 2}, dtype);
        (rank == 0 ? comm.send(tensor, 1, false) : comm.recv(tensor, 0, false))->wait();
        EXPECT_TRUE(same_bits(tensor, sample(5, dtype, {rows, 2})));
      }
  });
}

TEST(Messages, MatchByTag) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    SendOptions send;
    RecvOptions recv;
    auto a = number(1), b = number(2);
    if (rank == 0) {
      send.tag = 7;
      const auto first = comm.send(a, 1, true, send);
      send.tag = 8;
      comm.send(b, 1, false, send);
      first->wait();
    } else {
      recv.tag = 8;
      comm.recv(a, 0, false, recv);
      recv.tag = 7;
      comm.recv(b, 0, false, recv);
      EXPECT_EQ(a.item<int>(), 2);
      EXPECT_EQ(b.item<int>(), 1);
    }
    send.tag = -1;
    EXPECT_EQ(error_of([&] { comm.send(a, 1 - rank, false, send); }).code(),
              Errc::kInvalidArgument);
  });
}

TEST(Messages, EndWithoutAWait) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    auto polled = number(rank), left_alone = number(rank), dropped = number(rank);
    const auto post = [&](at::Tensor& tensor) {
      return rank == 0 ? comm.send(tensor, 1, true) : comm.recv(tensor, 0, true);
    };
    const auto first = post(polled);
    const auto second = post(left_alone);
    post(dropped).reset();
    std::atomic<bool> ended{false};
    second->registerWorkEndHook([&] { ended = true; });
    while (!first->isCompleted()) std::this_thread::yield();
    while (!ended) std::this_thread::yield();
    EXPECT_EQ(second->status(), WorkStatus::COMPLETED);
    second->wait();
    comm.barrier(false);
    EXPECT_EQ(polled.item<int>(), 0);
    EXPECT_EQ(left_alone.item<int>(), 0);
    auto last = number(rank);
    post(last)->wait();
    EXPECT_EQ(dropped.item<int>(), 0) << "messages of a peer arrive in order";
  });
}

TEST(Messages, ThatAreStuckHoldUpNoOthers) {
  std::latch received(1);
  on_ranks(3, [&](TorchComm& comm, int rank) {
    auto late = number(0), early = number(0);
    if (rank == 0) {
      // The MessageWaiter is busy with what nobody sends when it is asked about the other.
      const auto stuck = comm.recv(late, 1, true);
      while (stuck->isCompleted()) std::this_thread::yield();
      const auto other = comm.recv(early, 2, true);
      while (!other->isCompleted()) std::this_thread::yield();
      EXPECT_FALSE(stuck->isCompleted());
      received.count_down();
      stuck->wait();
      EXPECT_EQ(late.item<int>(), 1);
      EXPECT_EQ(early.item<int>(), 2);
    } else {
      if (rank == 1) received.wait();
      comm.send(number(rank), 0, false);
    }
  });
}

TEST(Messages, EndEveryThreadsWaitForThem) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    auto tensor = number(rank);
    if (rank == 0) {
      const auto work = comm.recv(tensor, 1, true);
      std::latch all(2);
      work->registerWorkWaitPreHook([&] { all.arrive_and_wait(); });
      std::thread second([&] { work->wait(); });
      std::thread third([&] { work->wait(); });
      all.wait();  // both are about to wait
      comm.barrier(false);
      second.join();
      third.join();
    } else {
      comm.barrier(false);
      comm.send(tensor, 0, false);
    }
  });
}

TEST(Batch, OfMixedOrderDoesNotDeadlock) {
  on_ranks(3, [&](TorchComm& comm, int rank) {
    for (const bool async_op : {false, true}) {
      auto batch = comm.batch_op_create();
      std::vector<at::Tensor> received;
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        for (int i = 0; i < 3; ++i) {
          batch.send(number(100 * rank + i, 30'000), peer);
          received.push_back(number(-1, 30'000));
          batch.recv(received.back(), peer);
        }
      }
      batch.issue(async_op)->wait();
      size_t at = 0;
      for (int peer = 0; peer < 3; ++peer)
        for (int i = 0; i < 3 && peer != rank; ++i)
          EXPECT_EQ(received[at++][29'999].item<int>(), 100 * peer + i);
    }
  });
}

TEST(Batch, ChecksItsPeersBeforeAnythingIsSent) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    for (const int peer : {2, -1, rank}) {
      auto batch = comm.batch_op_create();
      batch.send(number(1), 1 - rank);
      batch.send(number(2), peer);
      EXPECT_EQ(error_of([&] { batch.issue(false); }).code(), Errc::kInvalidArgument) << peer;
    }
    auto tensor = number(rank);
    comm.broadcast(tensor, 0, false);
    EXPECT_EQ(tensor.item<int>(), 0);
  });
}

RecvOptions within(milliseconds limit) {
  RecvOptions options;
  options.timeout = limit;
  return options;
}

TEST(MessageTimeout, NamesThePeerAndLeavesTheOthersAlone) {
  std::latch over(1);
  on_ranks(3, [&](TorchComm& comm, int rank) {
    auto tensor = number(0);
    if (rank == 0) {
      const CountDownAtExit at_exit(over);
      const auto begin = std::chrono::steady_clock::now();
      const auto error = error_of([&] { comm.recv(tensor, 1, false, within(milliseconds(200))); });
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
      EXPECT_EQ(error.code(), Errc::kTimeout);
      EXPECT_EQ(error.context().op, "recv");
      EXPECT_EQ(error.context().peer, 1);
      EXPECT_CONTAINS(error.what(), "0.2 s");
      EXPECT_CONTAINS(error.what(), "timeout=");
      // Everything with that peer fails at once, everything with others works.
      EXPECT_EQ(error_of([&] { comm.send(tensor, 1, false); }).code(), Errc::kPeerFailed);
      comm.recv(tensor, 2, false);
      EXPECT_EQ(tensor.item<int>(), 22);
      comm.send(tensor, 2, false);
      EXPECT_FALSE(comm.isAborted());
    } else if (rank == 2) {
      comm.send(number(22), 0, false);
      comm.recv(tensor, 0, false);
      EXPECT_EQ(tensor.item<int>(), 22);
    }
    over.wait();
    // A late message of the peer that was given up does not disturb either.
    if (rank == 1) comm.send(number(11), 0, false);
    auto sum = number(rank);
    comm.all_reduce(sum, RedOpType::SUM, false);
    EXPECT_EQ(sum.item<int>(), 3);
  });
}

TEST(MessageTimeout, OfAnAsynchronousWorkIsRaisedByEveryWait) {
  std::latch over(1);
  on_ranks(2, [&](TorchComm& comm, int rank) {
    if (rank == 1) return over.wait();
    auto tensor = number(0);
    const auto waited = comm.recv(tensor, 1, true, within(milliseconds(100)));
    const auto left_alone = comm.recv(tensor, 1, true, within(milliseconds(100)));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(error_of([&] { waited->wait(); }).code(), Errc::kTimeout);
    EXPECT_EQ(waited->status(), WorkStatus::TIMEDOUT);
    EXPECT_FALSE(waited->isCompleted());
    while (!isTerminal(left_alone->status())) std::this_thread::yield();
    EXPECT_EQ(left_alone->status(), WorkStatus::TIMEDOUT);
    over.count_down();
  });
}

TEST(MessageTimeout, OfOneWorkIsRaisedInEveryThreadThatWaitsForIt) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    if (rank == 0) {
      auto tensor = number(0);
      RecvOptions options;
      options.timeout = milliseconds(300);
      const auto work = comm.recv(tensor, 1, true, options);
      std::latch all(3);
      work->registerWorkWaitPreHook([&] { all.arrive_and_wait(); });
      const auto wait = [&] { EXPECT_EQ(error_of([&] { work->wait(); }).code(), Errc::kTimeout); };
      std::thread second(wait), third(wait);
      wait();
      second.join();
      third.join();
    }
    comm.barrier(false);
  });
}

TEST(MessageTimeout, OfABatchGivesUpOnlyThePeersThatAreMissing) {
  std::latch sent(1), over(1);
  on_ranks(3, [&](TorchComm& comm, int rank) {
    int aborts = 0;
    auto from_1 = number(0), from_2 = number(0);
    if (rank == 0) {
      const CountDownAtExit at_exit(over);
      sent.wait();
      const auto handle = comm.registerAbortHook([&] { ++aborts; });
      auto batch = comm.batch_op_create();
      batch.recv(from_1, 1);
      batch.recv(from_2, 2);
      BatchP2POptions options;
      options.timeout = milliseconds(300);
      const auto error = error_of([&] { batch.issue(false, options); });
      EXPECT_EQ(error.code(), Errc::kTimeout);
      EXPECT_EQ(error.context().peer, 1);
      EXPECT_EQ(aborts, 1);
      EXPECT_EQ(from_2.item<int>(), 2);
      comm.recv(from_2, 2, false);
      EXPECT_EQ(from_2.item<int>(), 4);
      EXPECT_EQ(error_of([&] { comm.recv(from_1, 1, false); }).code(), Errc::kPeerFailed);
    } else if (rank == 2) {
      const auto first = comm.send(number(2), 0, true);
      const auto second = comm.send(number(4), 0, true);
      sent.count_down();
      first->wait();
      second->wait();
    }
    over.wait();
  });
}

TEST(PeerFailure, EndsMessagesAtOnce) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    if (rank == 1) return;  // finalizes
    auto tensor = number(0);
    const auto error = error_of([&] { comm.recv(tensor, 1, false); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().peer, 1);
    EXPECT_EQ(error_of([&] { comm.send(tensor, 1, true)->wait(); }).code(), Errc::kPeerFailed);
  });
}

}  // namespace
}  // namespace torch::comms
