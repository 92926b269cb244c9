#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>

#include "base/setting.hpp"
#include "transport/world.hpp"

// What every link does, written once. A room instantiates it:
//     INSTANTIATE_TEST_SUITE_P(Shm, Conformance, testing::Values(Link{...}));
namespace torch::comms::transport::test {

class Conformance : public testing::TestWithParam<Link> {};

// Messages in flight, with the memory that they need.
struct MessageBuffer {
  explicit MessageBuffer(size_t size) : bytes(size) {}
  explicit MessageBuffer(std::vector<std::byte> data) : bytes(std::move(data)) {}
  std::vector<std::byte> bytes;
  Request request;
};

inline std::vector<size_t> interesting_sizes(const Transport& link) {
  const auto can = link.capabilities();
  const size_t eager = can.eager_bytes, chunk = can.chunk_bytes;
  return {0,         1,         7,     8,         24,
          25,        64,        4097,  eager - 1, eager,
          eager + 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 5,
          4'000'003};
}

TEST_P(Conformance, MessagesOfAllSizesArrive) {
  for (const bool receive_first : {true, false})
    run(GetParam(), [&](Rank& self) {
      std::list<MessageBuffer> sent, received;
      const auto sizes = interesting_sizes(self.link);
      const auto receive = [&] {
        for (const int peer : self.peers())
          for (const size_t size : sizes) {
            auto& message = received.emplace_back(size);
            self.link.receive(message.request, peer, 1, message.bytes);
          }
      };
      if (receive_first) receive();
      for (const int peer : self.peers())
        for (size_t i = 0; i < sizes.size(); ++i) {
          auto& message = sent.emplace_back(pattern(self.rank, peer, i, sizes[i]));
          self.link.send(message.request, peer, 1, message.bytes);
        }
      if (!receive_first) receive();
      for (auto& message : sent) self.wait(message.request);
      auto next = received.begin();
      for (const int peer : self.peers())
        for (size_t i = 0; i < sizes.size(); ++i, ++next) {
          self.wait(next->request);
          EXPECT_EQ(next->request.bytes(), sizes[i]);
          EXPECT_TRUE(next->bytes == pattern(peer, self.rank, i, sizes[i])) << sizes[i];
        }
      self.barrier();
    });
}

TEST_P(Conformance, TheNthReceiveOfAStreamTakesItsNthSend) {
  run(GetParam(), [](Rank& self) {
    std::list<MessageBuffer> sent, received;
    const auto size_of = [](uint64_t i) -> size_t { return i % 50 == 7 ? 300'000 : i % 97; };
    constexpr int kMessages = 400;
    for (uint64_t i = 0; i < kMessages; ++i)
      for (const int peer : self.peers()) {
        auto& out = sent.emplace_back(pattern(self.rank, peer, i, size_of(i)));
        self.link.send(out.request, peer, 5, out.bytes);
        // A receive may be larger than its message.
        auto& back = received.emplace_back(size_of(i) + (i % 3) * 1000);
        self.link.receive(back.request, peer, 5, back.bytes);
      }
    auto next = received.begin();
    for (uint64_t i = 0; i < kMessages; ++i)
      for (const int peer : self.peers()) {
        self.wait(next->request);
        ASSERT_EQ(next->request.bytes(), size_of(i));
        next->bytes.resize(size_of(i));
        ASSERT_TRUE(next->bytes == pattern(peer, self.rank, i, size_of(i))) << i;
        ++next;
      }
    for (auto& message : sent) self.wait(message.request);
    self.barrier();
  });
}

// Nobody receives on stream 1 until all of stream 2 has passed: more than the credit lies there.
TEST_P(Conformance, StreamsNeverWaitForEachOther) {
  const auto small_credit = [](TransportOptions& options) { options.eager_credit = 16 * 1024; };
  run(
      GetParam(),
      [](Rank& self) {
        std::list<MessageBuffer> sent, received;
        const auto send = [&](int peer, uint32_t stream, uint64_t i) {
          auto& message = sent.emplace_back(
              pattern(self.rank, peer, stream * 1000 + i, i % 40 == 3 ? 200'000 : 200));
          self.link.send(message.request, peer, stream, message.bytes);
        };
        for (const int peer : self.peers())
          for (uint64_t i = 0; i < 200; ++i) send(peer, 1, i);
        for (const uint32_t stream : {2u, 1u})
          for (uint64_t i = 0; i < 200; ++i) {
            if (stream == 2)
              for (const int peer : self.peers()) send(peer, 2, i);
            for (const int peer : self.peers()) {
              MessageBuffer message(i % 40 == 3 ? 200'000 : 200);
              self.link.receive(message.request, peer, stream, message.bytes);
              self.wait(message.request);
              ASSERT_TRUE(message.bytes ==
                          pattern(peer, self.rank, stream * 1000 + i, message.bytes.size()));
            }
          }
        for (auto& message : sent) self.wait(message.request);
        self.barrier();
      },
      small_credit);
}

// With and without requests, in one order; a link that has no other way says so.
TEST_P(Conformance, WhatIsTakenAtOnceKeepsItsPlaceAmongRequests) {
  run(GetParam(), [](Rank& self) {
    self.barrier();  // connections may have to be there
    const auto& link = self.link;
    constexpr uint64_t kMessages = 300;
    const auto size_of = [](uint64_t i) -> size_t { return i % 5 == 2 ? 0 : i * 7 % 200; };
    const auto tag_of = [](uint64_t i) { return static_cast<uint32_t>(i + 1); };
    uint64_t sent_at_once = 0, received_at_once = 0;
    for (const int peer : self.peers()) {
      std::list<MessageBuffer> sent;
      for (uint64_t i = 0; i < kMessages; ++i) {
        auto& message = sent.emplace_back(pattern(self.rank, peer, i, size_of(i)));
        const bool fits = message.bytes.size() <= link.inline_eager_bytes(peer);
        if (fits && i % 3 != 0 && self.link.try_send(peer, 3, message.bytes, tag_of(i)))
          ++sent_at_once;
        else
          self.link.send(message.request, peer, 3, message.bytes, tag_of(i));
      }
      for (uint64_t i = 0; i < kMessages; ++i) {
        MessageBuffer message(size_of(i));
        const ReceiveTarget target{.into = message.bytes, .bytes = message.bytes.size()};
        const ReceiveTarget longer{.into = message.bytes, .bytes = message.bytes.size() + 1};
        const size_t most = link.inline_eager_bytes(peer);
        if (most > 0 && message.bytes.size() <= most && i % 4 != 0) {
          EXPECT_FALSE(self.link.try_receive(peer, 3, target, tag_of(i) + 1000));
          EXPECT_FALSE(self.link.try_receive(peer, 3, longer, tag_of(i)));
          EXPECT_FALSE(self.link.try_receive(peer, 4, target, tag_of(i)));
          const auto deadline = in(kLong);
          for (int polls = 1; !self.link.try_receive(peer, 3, target, tag_of(i)); ++polls) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline);
            if (polls % 8 == 0) self.link.progress();
          }
          ++received_at_once;
        } else {
          self.link.receive(message.request, peer, 3, message.bytes, tag_of(i));
          self.wait(message.request);
        }
        ASSERT_TRUE(message.bytes == pattern(peer, self.rank, i, size_of(i))) << i;
      }
      for (auto& message : sent) self.wait(message.request);
      if (link.inline_eager_bytes(peer) > 0) {
        EXPECT_GT(sent_at_once, 0);
        EXPECT_GT(received_at_once, 0);
      }
    }
    self.barrier();
  });
}

TEST_P(Conformance, PiecesOfBothSidesNeedNotAgree) {
  run(GetParam(), [](Rank& self) {
    for (const size_t total : {size_t{100}, size_t{10'000}, size_t{1'000'003}}) {
      const auto cut = [&](auto bytes, size_t parts) {
        std::vector<decltype(bytes)> pieces;
        for (size_t i = 0; i < parts; ++i) {
          const size_t begin = total * i / parts, end = total * (i + 1) / parts;
          pieces.push_back(bytes.subspan(begin, end - begin));
          if (i % 4 == 0) pieces.push_back({});
        }
        return pieces;
      };
      for (const int peer : self.peers()) {
        MessageBuffer out(pattern(self.rank, peer, total, total)), back(total);
        const auto from = cut(ConstBytes(out.bytes), 23);
        const auto into = cut(Bytes(back.bytes), 7);
        self.link.receive(back.request, peer, 1, into);
        self.link.send(out.request, peer, 1, from);
        self.wait(out.request);
        self.wait(back.request);
        EXPECT_TRUE(back.bytes == pattern(peer, self.rank, total, total)) << total;
      }
    }
    self.barrier();
  });
}

// Collects what it is given, and counts what it is given wrongly.
struct Collector final : ReceiveSink {
  std::vector<std::byte> bytes;
  uint64_t taken = 0, cut = 0;
  void consume(uint64_t offset, ConstBytes chunk) noexcept override {
    std::memcpy(bytes.data() + offset, chunk.data(), chunk.size());
    taken += chunk.size();
    cut += offset % 64 != 0 ||
           ((offset + chunk.size()) % 64 != 0 && offset + chunk.size() != bytes.size());
  }
};

TEST_P(Conformance, AConsumerGetsEveryByteOnceAndWholeElements) {
  run(GetParam(), [](Rank& self) {
    for (const size_t size : interesting_sizes(self.link))
      for (const int peer : self.peers()) {
        MessageBuffer out(pattern(self.rank, peer, size, size));
        Collector collector;
        collector.bytes.resize(size);
        Request back;
        self.link.receive(back, peer, 3, size, collector);
        self.link.send(out.request, peer, 3, out.bytes);
        self.wait(out.request);
        self.wait(back);
        EXPECT_EQ(collector.taken, size);
        EXPECT_EQ(collector.cut, 0u);
        EXPECT_TRUE(collector.bytes == pattern(peer, self.rank, size, size));
      }
    self.barrier();
  });
}

TEST_P(Conformance, AReceiveThatIsTooSmallFailsAndTheLinkGoesOn) {
  for (const bool receive_first : {true, false})
    for (const auto& [size, capacity] :
         {std::pair<size_t, size_t>{6, 5}, {1'000'000, 5}, {1'000'000, 500'000}})
      run(GetParam(), [&, size = size, capacity = capacity](Rank& self) {
        std::list<MessageBuffer> sent, received;
        const auto receive = [&] {
          for (const int peer : self.peers()) {
            auto& back = received.emplace_back(capacity);
            self.link.receive(back.request, peer, 1, back.bytes);
          }
        };
        if (receive_first) receive();
        self.barrier();
        for (const int peer : self.peers()) {
          auto& out = sent.emplace_back(size);
          self.link.send(out.request, peer, 1, out.bytes);
        }
        self.barrier();
        if (!receive_first) receive();
        for (auto& back : received) {
          EXPECT_EQ(self.error_of(back.request), Errc::kMismatch);
          EXPECT_EQ(back.request.bytes(), size);
        }
        for (auto& out : sent) {
          if (size > 100) {
            EXPECT_EQ(self.error_of(out.request), Errc::kMismatch);
          } else {
            self.wait(out.request);
          }
        }
        for (const int peer : self.peers()) EXPECT_EQ(self.link.state(peer), PeerState::kReady);
        self.barrier();
      });
}

TEST_P(Conformance, WrongCallsThrowBeforeAnythingHappens) {
  run(GetParam(), [](Rank& self) {
    Request request;
    const auto code = [&](const auto& call) {
      try {
        call();
      } catch (const CommError& error) {
        return error.code();
      }
      return Errc::kInternal;
    };
    EXPECT_EQ(code([&] { self.link.send(request, self.size, 0, ConstBytes{}); }),
              Errc::kInvalidArgument);
    EXPECT_EQ(code([&] { self.link.receive(request, -1, 0, Bytes{}); }), Errc::kInvalidArgument);
    const int peer = self.peers().front();
    auto wrong = self.link.endpoint();
    wrong.link = "pigeon";
    EXPECT_EQ(code([&] { self.link.connect(peer, wrong); }), Errc::kInvalidArgument);
    RemoteMemory memory{{.rank = peer, .size = 100}};
    EXPECT_EQ(code([&] { self.link.put(request, memory, 101, ConstBytes{}); }), Errc::kOutOfRange);
    std::byte two[2];
    EXPECT_EQ(code([&] { self.link.put(request, memory, 99, two); }), Errc::kOutOfRange);
    EXPECT_EQ(code([&] { self.link.get(request, memory, UINT64_MAX, two); }), Errc::kOutOfRange);
    EXPECT_EQ(code([&] { self.link.signal(memory, 96, 1, CounterOp::kAdd); }), Errc::kOutOfRange);
    EXPECT_EQ(code([&] { self.link.signal(memory, 4, 1, CounterOp::kAdd); }),
              Errc::kInvalidArgument);
    EXPECT_TRUE(request.is_done());
    self.barrier();
  });
}

// Every rank opens memory of its own and knows that of its peers.
struct Windows {
  std::vector<std::byte> own;  // behind register_memory
  std::unique_ptr<MemoryRegion> memory;
  std::vector<std::unique_ptr<RemoteMemory>> remote;  // by rank

  Windows(Rank& self, size_t size, bool shared) : remote(static_cast<size_t>(self.size)) {
    if (shared) {
      memory = self.link.allocate(size);
    } else {
      own.resize(size);
      memory = self.link.register_memory(own);
    }
    const auto mine = serialize(memory->handle());
    for (const int peer : self.peers()) {
      Request out, back;
      std::string theirs(kMemoryHandleBytes, ' ');
      self.link.receive(back, peer, 99, std::as_writable_bytes(std::span(theirs)));
      self.link.send(out, peer, 99, std::as_bytes(std::span(mine)));
      self.wait(out);
      self.wait(back);
      remote[static_cast<size_t>(peer)] = self.link.import(parse_memory_handle(theirs));
    }
  }
  RemoteMemory& of(int peer) { return *remote[static_cast<size_t>(peer)]; }
};

inline void wait_counter(Rank& self, const MemoryRegion& memory, uint64_t offset, uint64_t value) {
  Transport* links[] = {&self.link};
  const auto deadline = in(kLong);
  const auto end = wait_until(links, self.link.abort_signal(), deadline, self.link.wait_policy(),
                              [&] { return read_counter(memory, offset) >= value; });
  // A sleeper that nobody wakes finds its counter at the deadline.
  if (end != WaitResult::kDone || std::chrono::steady_clock::now() >= deadline)
    throw std::runtime_error("a counter did not grow");
}

// Layout: per source a data counter, an acknowledgement counter, and a slot.
TEST_P(Conformance, WhoeverSeesTheSignalSeesWhatWasPutBefore) {
  for (const bool shared : {true, false})
    run(GetParam(), [&](Rank& self) {
      constexpr size_t kSlot = 600'000;
      const auto slot = [](int rank) { return 1024 + static_cast<size_t>(rank) * kSlot; };
      Windows windows(self, slot(self.size), shared);
      const auto word = [](int rank, int which) {
        return static_cast<uint64_t>(rank * 16 + which);
      };
      for (uint64_t round = 1; round <= (kSanitized ? 100 : 300); ++round) {
        const size_t size = round % 29 == 0 ? kSlot : 8 + round * 13 % 3000;
        std::list<MessageBuffer> sent;
        for (const int peer : self.peers()) {
          auto& out = sent.emplace_back(pattern(self.rank, peer, round, size));
          self.link.put(out.request, windows.of(peer), slot(self.rank), out.bytes);
          self.link.signal(windows.of(peer), word(self.rank, 0), round, CounterOp::kMax);
        }
        for (const int peer : self.peers()) {
          wait_counter(self, *windows.memory, word(peer, 0), round);
          const auto got = windows.memory->bytes().subspan(slot(peer), size);
          const auto want = pattern(peer, self.rank, round, size);
          ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << round;
          self.link.signal(windows.of(peer), word(self.rank, 8), 1, CounterOp::kAdd);
        }
        for (const int peer : self.peers())
          wait_counter(self, *windows.memory, word(peer, 8), round);
        for (auto& message : sent) self.wait(message.request);
      }
      self.barrier();
    });
}

TEST_P(Conformance, GetReadsWhatIsThereAndFlushWaitsForPuts) {
  for (const bool shared : {true, false})
    run(GetParam(), [&](Rank& self) {
      constexpr size_t kSize = 700'001;
      Windows windows(self, kSize, shared);
      for (const int peer : self.peers()) {
        // Each rank owns the part of every window that is its peer number's.
        const size_t begin = kSize / 4 * static_cast<size_t>(self.rank), size = kSize / 4;
        MessageBuffer out(pattern(self.rank, peer, 1, size)), back(size);
        self.link.put(out.request, windows.of(peer), begin, out.bytes);
        Request flushed;
        self.link.flush(flushed, peer);
        self.wait(flushed);
        self.wait(out.request);
        self.link.get(back.request, windows.of(peer), begin, back.bytes);
        self.wait(back.request);
        EXPECT_TRUE(back.bytes == out.bytes);
      }
      self.barrier();
    });
}

TEST_P(Conformance, MemoryThatItsOwnerHasClosedIsRefused) {
  run(GetParam(), [](Rank& self) {
    Windows windows(self, 4096, false);
    self.barrier();
    windows.memory.reset();
    self.barrier();
    for (const int peer : self.peers()) {
      MessageBuffer out(100), back(100);
      Request flushed;
      self.link.put(out.request, windows.of(peer), 0, out.bytes);
      self.link.flush(flushed, peer);
      self.link.wait(out.request, in(kLong));
      self.link.wait(flushed, in(kLong));
      const bool refused = !out.request.is_ok() || !flushed.is_ok();
      EXPECT_TRUE(out.request.is_done() && flushed.is_done() && refused);
      self.link.get(back.request, windows.of(peer), 0, back.bytes);
      EXPECT_EQ(self.error_of(back.request), Errc::kMismatch);
      EXPECT_EQ(self.link.state(peer), PeerState::kReady);
    }
    self.barrier();
  });
}

TEST_P(Conformance, AnAbortEndsABlockedWaitAndAllThatIsInFlight) {
  auto links = make_links(GetParam());
  auto& link = *links.front();
  const int peer = GetParam().has_peers() ? 1 : 0;
  MessageBuffer back(100), large(5'000'000);
  link.receive(back.request, peer, 1, back.bytes);
  link.send(large.request, peer, 2, large.bytes);
  std::thread waiter([&] { EXPECT_EQ(link.wait(back.request, in(kLong)), WaitResult::kDone); });
  link.abort_signal().raise();
  waiter.join();
  EXPECT_EQ(back.request.error(), Errc::kAborted);
  EXPECT_TRUE(large.request.is_done());
  EXPECT_EQ(large.request.error(), Errc::kAborted);
  Request later;
  link.send(later, peer, 1, ConstBytes{});
  EXPECT_TRUE(later.is_done() && !later.is_ok());
}

TEST_P(Conformance, AWaitEndsAtItsDeadlineAndMayBeTakenUpAgain) {
  run(GetParam(), [](Rank& self) {
    const int peer = self.next(), source = self.previous();
    MessageBuffer back(8), out(pattern(self.rank, peer, 1, 8));
    self.link.receive(back.request, source, 1, back.bytes);
    EXPECT_EQ(self.link.wait(back.request, in(milliseconds(3))), WaitResult::kTimeout);
    EXPECT_FALSE(back.request.is_done());
    self.barrier();
    self.link.send(out.request, peer, 1, out.bytes);
    self.wait(back.request);
    EXPECT_TRUE(back.bytes == pattern(source, self.rank, 1, 8));
    self.barrier();
  });
}

// Every wait sleeps at once. TC_TEST_ROUNDS lengthens it.
TEST_P(Conformance, SleepersAreWokenByMessagesRoomAndCounters) {
  run(GetParam(), [](Rank& self) {
    Windows windows(self, 1024, true);
    Transport* links[] = {&self.link};
    const auto wait = [&](const auto& condition) {
      const auto deadline = in(kLong);
      if (wait_until(links, self.link.abort_signal(), deadline, kSleepy, condition) !=
              WaitResult::kDone ||
          std::chrono::steady_clock::now() >= deadline)
        throw std::runtime_error("a sleeper was not woken");
    };
    const auto rounds = torch::comms::test::setting("TC_TEST_ROUNDS", 60);
    for (uint64_t round = 1; round <= rounds; ++round) {
      std::list<MessageBuffer> messages;
      for (const int peer : self.peers()) {
        auto& back = messages.emplace_back(round % 10 == 0 ? 2'000'000 : 8);
        self.link.receive(back.request, peer, 1, back.bytes);
        auto& out = messages.emplace_back(round % 10 == 0 ? 2'000'000 : 8);
        self.link.send(out.request, peer, 1, out.bytes);
      }
      for (auto& one : messages) wait([&] { return one.request.is_done(); });
      for (const int peer : self.peers())
        self.link.signal(windows.of(peer), 8 * static_cast<uint64_t>(self.rank), round,
                         CounterOp::kMax);
      for (const int peer : self.peers())
        wait([&] {
          return read_counter(*windows.memory, 8 * static_cast<uint64_t>(peer)) >= round;
        });
    }
    self.barrier();
  });
}

TEST_P(Conformance, APeerThatLeavesIsNamedAndTheOthersGoOn) {
  if (!GetParam().has_peers()) GTEST_SKIP() << "a rank alone has no peer that could leave";
  auto links = make_links(GetParam());
  const int last = GetParam().ranks - 1;
  std::vector<std::thread> threads;
  for (int i = 0; i < last; ++i)
    threads.emplace_back([&, i] {
      Rank self{*links[static_cast<size_t>(i)], i, last};
      MessageBuffer hello(8), lost(8);
      self.link.receive(hello.request, last, 1, hello.bytes);
      self.wait(hello.request);  // what it sent before is not lost
      EXPECT_TRUE(hello.bytes == pattern(last, i, 1, 8));
      self.link.receive(lost.request, last, 1, lost.bytes);
      EXPECT_EQ(self.error_of(lost.request), Errc::kPeerFailed);
      EXPECT_EQ(self.link.state(last), PeerState::kFailed);
      ASSERT_NE(self.link.failure(last), nullptr);
      EXPECT_NE(self.link.failure(last)->reason.find("rank " + std::to_string(last)),
                std::string::npos);
      Request late;
      self.link.send(late, last, 1, ConstBytes{});
      EXPECT_EQ(self.error_of(late), Errc::kPeerFailed);
      MessageBuffer last_message(8), nothing(8);  // what had come before is not lost either
      self.link.receive(last_message.request, last, 2, last_message.bytes);
      self.wait(last_message.request);
      EXPECT_TRUE(last_message.bytes == pattern(last, i, 2, 8));
      self.link.receive(nothing.request, last, 2, nothing.bytes);
      EXPECT_EQ(self.error_of(nothing.request), Errc::kPeerFailed);
      for (int round = 0; round < 3; ++round) self.barrier();  // among those that are left
    });
  {
    Rank self{*links.back(), last, GetParam().ranks};
    std::list<MessageBuffer> sent;
    try {
      for (int i = 0; i < last; ++i) {
        auto& out = sent.emplace_back(pattern(last, i, 1, 8));
        self.link.send(out.request, i, 1, out.bytes);
        auto& last_message = sent.emplace_back(pattern(last, i, 2, 8));
        self.link.send(last_message.request, i, 2, last_message.bytes);
      }
      for (auto& out : sent) self.wait(out.request);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    links.back().reset();
  }
  for (auto& thread : threads) thread.join();
}

// It closes its link before it has looked who has connected.
TEST_P(Conformance, TheLastWordOfARankArrivesThoughItsPeerWasNotLetInYet) {
  if (!GetParam().has_peers()) GTEST_SKIP() << "it has no peers";
  for (const int leaves : {1, 0}) {
    auto links = make_links(GetParam());
    const int stays = 1 - leaves;
    auto& link = *links[static_cast<size_t>(stays)];
    MessageBuffer sent(pattern(leaves, stays, 1, 40)), received(40);
    link.receive(received.request, leaves, 1, received.bytes);
    std::thread other([&] { link.wait(received.request, in(kLong)); });
    links[static_cast<size_t>(leaves)]->send(sent.request, stays, 1, sent.bytes);
    links[static_cast<size_t>(leaves)].reset();
    other.join();
    ASSERT_TRUE(received.request.is_ok()) << "rank " << leaves << " has left";
    EXPECT_EQ(received.bytes, sent.bytes);
  }
}

TEST_P(Conformance, AForkedChildTouchesNothingOfItsParents) {
  run(GetParam(), [](Rank& self) {
    const int peer = self.next(), source = self.previous();
    self.barrier();
    if (self.rank == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        Request request;
        self.link.send(request, peer, 1, ConstBytes{});
        const bool right =
            request.is_done() && request.error() == Errc::kForked && !self.link.progress();
        ::_exit(right ? 0 : 1);
      }
      int status = -1;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    MessageBuffer out(pattern(self.rank, peer, 1, 8)), back(8);
    self.link.send(out.request, peer, 1, out.bytes);
    self.link.receive(back.request, source, 1, back.bytes);
    self.wait(back.request);
    EXPECT_TRUE(back.bytes == pattern(source, self.rank, 1, 8));
    self.barrier();
  });
}

inline size_t entries(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

inline size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("torchcomms") != line.npos;
  return count;
}

TEST_P(Conformance, NothingIsLeftAfterTwoHundredLives) {
  const auto run_once = [&] {
    auto links = make_links(GetParam());
    Request out, back;
    const int peer = GetParam().has_peers() ? 1 : 0;
    auto memory = links.front()->allocate(4096);
    auto remote = links[static_cast<size_t>(peer)]->import(memory->handle());
    links.front()->receive(back, peer, 1, Bytes{});
    links[static_cast<size_t>(peer)]->send(out, 0, 1, ConstBytes{});
    const auto deadline = in(kLong);
    while (!back.is_done() && std::chrono::steady_clock::now() < deadline)
      for (auto& link : links) link->progress();
    EXPECT_TRUE(back.is_ok());
  };
  run_once();
  const size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  const size_t mappings = shared_mappings();
  for (int i = 0; i < 200; ++i) run_once();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(shared_mappings(), mappings);
}

}  // namespace torch::comms::transport::test
