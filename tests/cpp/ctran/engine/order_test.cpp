#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>

#include "ctran/engine/world.hpp"

// In which order calls run, and what they may wait for.
namespace torch::comms::ctran::test {
namespace {

class Order : public testing::TestWithParam<LinkPolicy> {
 protected:
  void run(int size, const std::function<void(Rank&)>& body) {
    test::run({.size = size, .links = GetParam()}, body);
  }
};

// Each reduces what the one before left: any other order gives other values.
TEST_P(Order, CollectivesOfAGroupRunInTheOrderOfTheirCallsSyncAndAsyncAlike) {
  run(3, [](Rank& self) {
    std::vector<float> values(3000, 1);
    AllReduce reduce(values, 3);
    std::vector<EngineWork> works;
    for (int i = 0; i < 6; ++i) {
      if (i % 3 == 2)
        self.group->run(reduce.call);
      else
        works.push_back(self.group->start(reduce.call));
    }
    for (auto& work : works) EXPECT_TRUE(work.done());
    for (const float value : values) ASSERT_EQ(value, 729.0f);
    EXPECT_EQ(self.group->sequence(), 6u);
    self.group->run(barrier(3));
  });
}

struct Count final : CompletionListener {
  std::atomic<int> ended{0}, failed{0};
  void on_complete(const CommError* error) noexcept override {
    failed += error != nullptr;
    ++ended;
  }
};

TEST_P(Order, AThousandAsyncCallsFinishWithoutAnyoneWaiting) {
  run(2, [](Rank& self) {
    Count count;
    std::vector<std::vector<float>> values(1000, std::vector<float>(17, 2));
    for (auto& one : values) {
      AllReduce reduce(one, 2);
      self.group->start(reduce.call, &count);
    }
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (count.ended < 1000 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_EQ(count.ended, 1000);
    EXPECT_EQ(count.failed, 0);
    for (const auto& one : values) EXPECT_EQ(one, std::vector<float>(17, 4));
    self.group->run(barrier(2));
  });
}

TEST_P(Order, SendsBeforeReceivesOnBothSidesDoNotDeadlock) {
  for (const size_t count : {3u, 500'000u})
    run(2, [&](Rank& self) {
      const int peer = 1 - self.rank();
      std::vector<float> out(count, static_cast<float>(self.rank())), back(count, -1);
      Message send(Operation::kSend, peer, out, 2), receive(Operation::kReceive, peer, back, 2);
      auto sent = self.group->start(send.call);
      self.group->run(receive.call);
      sent.wait();
      EXPECT_EQ(back, std::vector<float>(count, static_cast<float>(peer)));
      self.group->run(barrier(2));
    });
}

TEST_P(Order, MessagesRunBesideACollectiveThatWaits) {
  run(2, [](Rank& self) {
    std::vector<float> values(100, 1), payload(1000, 3);
    AllReduce reduce(values, 2);
    Message send(Operation::kSend, 0, payload, 2), receive(Operation::kReceive, 1, payload, 2);
    if (self.rank() == 0) {
      auto work = self.group->start(reduce.call);
      self.group->run(receive.call);  // rank 1 comes to the collective after it
      work.wait();
    } else {
      self.group->run(send.call);
      self.group->run(reduce.call);
    }
    EXPECT_EQ(values, std::vector<float>(100, 2));
    self.group->run(barrier(2));
  });
}

TEST_P(Order, ABatchStartsAllOfItsMessagesAndMatchesInOrder) {
  run(3, [](Rank& self) {
    constexpr int kEach = 5;
    std::vector<std::vector<float>> out, back;
    std::vector<std::unique_ptr<Message>> messages;
    for (int peer = 0; peer < 3; ++peer)  // itself, too
      for (int i = 0; i < kEach; ++i) {
        const size_t count = i == 3 ? 300'000 : 10;
        out.emplace_back(count, static_cast<float>(100 * self.rank() + 10 * peer + i));
        back.emplace_back(count, -1);
      }
    for (size_t i = 0; i < out.size(); ++i) {
      const int peer = static_cast<int>(i) / kEach;
      messages.push_back(std::make_unique<Message>(Operation::kSend, peer, out[i], 3));
      messages.push_back(std::make_unique<Message>(Operation::kReceive, peer, back[i], 3));
    }
    std::vector<EngineCall> batch;
    for (const auto& message : messages) batch.push_back(message->call);
    self.group->run(batch);
    for (size_t i = 0; i < back.size(); ++i) {
      const int peer = static_cast<int>(i) / kEach, number = static_cast<int>(i) % kEach;
      EXPECT_EQ(back[i].front(), static_cast<float>(100 * peer + 10 * self.rank() + number));
      EXPECT_EQ(back[i].back(), back[i].front());
    }
    self.group->run(barrier(3));
  });
}

TEST_P(Order, AReceiveFromAnybodyTakesWhatComesAndSaysFromWhom) {
  for (const size_t count : {3u, 300'000u})
    for (const int tag : {0, 5})
      run(4, [&](Rank& self) {
        std::vector<float> values(count, static_cast<float>(self.rank()));
        if (self.rank() != 0) {
          Message send(Operation::kSend, 0, values, 4);
          send.call.tag = tag;
          self.group->run(send.call);
        } else {
          std::vector<int> sources;
          for (int i = 1; i < 4; ++i) {
            Message receive(Operation::kReceive, kAnySource, values, 4);
            receive.call.tag = tag;
            auto work = self.group->start(receive.call);
            work.wait();
            EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(work.source())));
            sources.push_back(work.source());
          }
          std::sort(sources.begin(), sources.end());
          EXPECT_EQ(sources, (std::vector<int>{1, 2, 3}));
        }
        self.group->run(barrier(4));
      });
}

// The named one was called first, so the first message is its own.
TEST_P(Order, AReceiveFromAnybodyTakesNothingThatAnotherWaitsFor) {
  run(2, [](Rank& self) {
    std::vector<float> first(4, 1), second(4, 2);
    if (self.rank() == 0) {
      Message named(Operation::kReceive, 1, first, 2),
          any(Operation::kReceive, kAnySource, second, 2);
      auto from_one = self.group->start(named.call), from_any = self.group->start(any.call);
      self.group->run(barrier(2));
      from_one.wait();
      from_any.wait();
      EXPECT_EQ(first, std::vector<float>(4, 1));
      EXPECT_EQ(second, std::vector<float>(4, 2));
      EXPECT_EQ(from_one.source(), kAnySource);
      EXPECT_EQ(from_any.source(), 1);
    } else {
      self.group->run(barrier(2));
      for (auto* values : {&first, &second}) {
        Message send(Operation::kSend, 0, *values, 2);
        self.group->run(send.call);
      }
    }
    self.group->run(barrier(2));
  });
}

// Two threads a rank, each with a group of its own, in opposite orders on the two ranks.
TEST_P(Order, TwoGroupsInOppositeOrdersBothFinish) {
  run(2, [](Rank& self) {
    const int all[] = {0, 1};
    const auto left = self.group->split(all, "left"), right = self.group->split(all, "right");
    const auto work = [&](EngineGroup& group, size_t count, int times) {
      for (int i = 0; i < times; ++i) {
        std::vector<float> values(count, 1);
        AllReduce reduce(values, 2);
        group.run(reduce.call);
        EXPECT_EQ(values, std::vector<float>(count, 2));
      }
    };
    // One thread each.
    std::thread other([&] { work(*right, 5000, 100); });
    work(*left, 7, 300);
    other.join();
    // Two threads that change over, so that each rank first waits for what the other has last.
    auto& mine = self.rank() == 0 ? *left : *right;
    auto& theirs = self.rank() == 0 ? *right : *left;
    std::thread late([&] { work(theirs, 100'000, 3); });
    work(mine, 100'000, 3);
    late.join();
    self.group->run(barrier(2));
  });
}

TEST_P(Order, ThreadsThatWaitForTheirOwnWorksAllReturn) {
  run(2, [](Rank& self) {
    constexpr int kThreads = 4;
    std::vector<std::unique_ptr<EngineGroup>> groups;
    const int all[] = {0, 1};
    for (int i = 0; i < kThreads; ++i) groups.push_back(self.group->split(all, "one"));
    std::vector<std::thread> threads;
    for (auto& group : groups)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> values(2000, 1);
          AllReduce reduce(values, 2);
          auto work = group->start(reduce.call);
          if (i % 2 == 0) work.poll();
          work.wait();
          EXPECT_EQ(values, std::vector<float>(2000, 2));
        }
      });
    for (auto& thread : threads) thread.join();
    self.group->run(barrier(2));
  });
}

TEST_P(Order, MessagesMatchByPeerAndTag) {
  run(3, [](Rank& self) {
    constexpr int kTags = 5;
    const int next = (self.rank() + 1) % 3, before = (self.rank() + 2) % 3;
    for (const size_t count : {3u, 200'000u}) {
      std::vector<std::vector<float>> out, in;
      std::deque<Message> sends, receives;
      std::vector<EngineWork> works;
      for (int i = 0; i < 2 * kTags; ++i) {
        out.emplace_back(count, static_cast<float>(100 * self.rank() + i));
        in.emplace_back(count, -1);
      }
      // Tags 0, 7, 14, ...; two of each, received in another order than they are sent.
      for (int i = 0; i < 2 * kTags; ++i) {
        auto& send = sends.emplace_back(Operation::kSend, next, out[static_cast<size_t>(i)], 3);
        send.call.tag = i % kTags * 7;
        const int at = 2 * kTags - 1 - i;
        auto& receive =
            receives.emplace_back(Operation::kReceive, before, in[static_cast<size_t>(at)], 3);
        receive.call.tag = at % kTags * 7;
        if (self.rank() != 1) works.push_back(self.group->start(send.call));
        works.push_back(self.group->start(receive.call));
        if (self.rank() == 1) works.push_back(self.group->start(send.call));
      }
      for (auto& work : works) work.wait();
      for (int i = 0; i < 2 * kTags; ++i) {
        // Of one tag, receives take the sends in their order: the second was posted first.
        const int sent = (i + kTags) % (2 * kTags);
        EXPECT_EQ(in[static_cast<size_t>(i)],
                  std::vector<float>(count, static_cast<float>(100 * before + sent)))
            << "message " << i;
      }
    }
    self.group->run(barrier(3));
  });
}

TEST_P(Order, AnyNumberOfMessagesMayBeInFlight) {
  run(2, [](Rank& self) {
    // A sanitizer takes 20 times as long.
    constexpr size_t kMany = kSanitized ? 7'000 : 70'000;
    std::vector<std::vector<float>> out(kMany, {0}), in(kMany, {-1});
    for (size_t i = 0; i < kMany; ++i) out[i][0] = static_cast<float>(i);
    std::deque<Message> calls;
    std::vector<EngineWork> works;
    const bool sends = self.rank() == 0;
    const auto start_all = [&] {
      for (size_t i = 0; i < kMany; ++i) {
        auto& call = calls.emplace_back(sends ? Operation::kSend : Operation::kReceive,
                                        1 - self.rank(), sends ? out[i] : in[i], 2);
        works.push_back(self.group->start(call.call));
      }
    };
    if (sends) start_all();
    self.group->run(barrier(2));
    if (!sends) start_all();
    for (auto& work : works) work.wait();
    if (!sends) {
      EXPECT_EQ(in, out);
    }
  });
}

TEST_P(Order, TagsOfGroupsAndOfThisRankItselfAreApart) {
  run(2, [](Rank& self) {
    const int all[] = {0, 1};
    for (int round = 0; round < 20; ++round) {
      const auto child = self.group->split(all, "child");
      for (const int peer : {0, 1}) {
        std::vector<float> out(2, static_cast<float>(round + peer)), in(2, -1);
        Message receive(Operation::kReceive, self.rank(), in, 2);
        Message send(Operation::kSend, self.rank(), out, 2);
        receive.call.tag = send.call.tag = 9;
        auto* group = peer == 0 ? child.get() : self.group.get();
        auto work = group->start(receive.call);
        group->run(send.call);
        work.wait();
        EXPECT_EQ(in, out);
      }
      // Sent before the other has made the group, and left behind unread: both cost nothing later.
      std::vector<float> out(1000, 1);
      Message send(Operation::kSend, 1 - self.rank(), out, 2);
      send.call.tag = round + 1;
      child->run(send.call);
    }
    self.group->run(barrier(2));
  });
}

TEST_P(Order, AReceiveWhoseTagIsNeverSentFailsWhenItsPeerLeaves) {
  run(2, [](Rank& self) {
    const int all[] = {0, 1};
    auto child = self.group->split(all, "child");
    std::vector<float> payload(4, 1);
    if (self.rank() == 0) {
      Message send(Operation::kSend, 1, payload, 2);
      send.call.tag = 1;
      child->run(send.call);
      child.reset();
    } else {
      Message receive(Operation::kReceive, 0, payload, 2);
      receive.call.tag = 1;
      child->run(receive.call);
      receive.call.tag = 2;
      const auto error = error_of([&] { child->run(receive.call); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    }
    self.group->run(barrier(2));
  });
}

INSTANTIATE_TEST_SUITE_P(Links, Order, testing::Values(LinkPolicy::kShm, LinkPolicy::kTcp),
                         [](const auto& info) {
                           return info.param == LinkPolicy::kShm ? "shm" : "tcp";
                         });

// A copy that nothing waits for is made before the peers come, not after.
TEST(Calls, PutTheirOwnBlockInPlaceWhileTheOthersAreUnderWay) {
  run({.size = 2}, [](Rank& self) {
    std::vector<float> own(1000, 7), all(2000, 0);
    Simple gather(Operation::kAllGather, Blocks::equal(1000, 2), bytes_of(std::as_const(own)),
                  bytes_of(all), sizeof(float));
    self.sync();
    if (self.rank() == 0) {
      auto work = self.group->start(gather.call);
      const auto deadline = std::chrono::steady_clock::now() + kLong;
      const std::atomic_ref<float> last(all[999]);
      while (last.load() != 7 && std::chrono::steady_clock::now() < deadline) work.poll();
      EXPECT_EQ(last.load(), 7);
      EXPECT_FALSE(work.done());
      self.sync();
      work.wait();
    } else {
      self.sync();
      self.group->run(gather.call);
    }
    EXPECT_EQ(all, std::vector<float>(2000, 7));
    self.group->run(barrier(2));
  });
}

TEST(Calls, ThatCannotBeAreRefusedBeforeAnythingIsSent) {
  run({.size = 2}, [](Rank& self) {
    std::vector<float> values(4, 1);
    const auto code = [&](const std::function<void(EngineCall&)>& change) {
      AllReduce reduce(values, 2);
      change(reduce.call);
      return error_of([&] { self.group->run(reduce.call); }).code();
    };
    EXPECT_EQ(code([](EngineCall& c) { c.blocks = Blocks::even(5, 2); }), Errc::kInvalidArgument);
    EXPECT_EQ(code([](EngineCall& c) { c.blocks = Blocks::even(4, 3); }), Errc::kInvalidArgument);
    EXPECT_EQ(code([](EngineCall& c) { c.dtype = 99; }), Errc::kInvalidArgument);
    EXPECT_EQ(code([](EngineCall& c) { c.op = ReduceOpCode::kBitAnd; }), Errc::kInvalidArgument);
    EXPECT_EQ(code([](EngineCall& c) {
                c.algorithm = schedule::find_algorithm(Operation::kBroadcast, "direct");
              }),
              Errc::kUnsupported);
    Message send(Operation::kSend, 2, values, 2);
    EXPECT_EQ(error_of([&] { self.group->run(send.call); }).code(), Errc::kInvalidArgument);
    EXPECT_EQ(self.group->sequence(), 0u);
    AllReduce reduce(values, 2);
    self.group->run(reduce.call);
    EXPECT_EQ(values, std::vector<float>(4, 2));
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
