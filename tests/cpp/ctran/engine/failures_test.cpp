#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "ctran/engine/world.hpp"

// How groups end that cannot go on: who is told, when, and what it says.
namespace torch::comms::ctran::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr seconds kSoon{5};  // not by a limit: those are far longer, or said

class Failures : public testing::TestWithParam<LinkPolicy> {
 protected:
  void run(int size, const std::function<void(Rank&)>& body) {
    test::run({.size = size, .links = GetParam()}, body);
  }
};

void expect_text(const CommError& error, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "'" << part << "' is not in: " << error.what();
}

// Every later call raises the same.
void expect_sticky(EngineGroup& group, Errc code) {
  EXPECT_EQ(error_of([&] { group.run(barrier(group.size())); }).code(), code);
  EXPECT_EQ(error_of([&] { group.start(barrier(group.size())); }).code(), code);
  ASSERT_TRUE(group.failure().has_value());
  EXPECT_EQ(group.failure()->code(), code);
}

// Four ranks, of which rank 2 has two elements more: all raise that soon.
void disagree(Rank& self, size_t count, const std::string& where = {}) {
  std::vector<float> values(self.rank() == 2 ? count + 2 : count, 1);
  AllReduce reduce(values, 4);
  self.group->run(barrier(4));
  const auto begin = Clock::now();
  const auto error = error_of([&] { self.group->run(reduce.call); });
  EXPECT_LT(Clock::now() - begin, kSoon) << where;
  EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
  expect_text(error,
              {"rank 2 calls all_reduce(float32, " + std::to_string(count + 2),
               "ranks 0, 1, 3 call all_reduce(float32, " + std::to_string(count), "as number 2"});
  EXPECT_EQ(error.context().peer, 2);
  expect_sticky(*self.group, Errc::kMismatch);
  self.sync();
}

TEST_P(Failures, AMismatchIsRaisedByAllRanksWithWhatEachCalled) {
  for (const size_t count : {size_t{10}, size_t{400'000}})
    run(4, [&](Rank& self) { disagree(self, count); });
}

// Frames that come late let some ranks disagree while another is still in the collective before.
TEST_P(Failures, ARankThatIsBehindStillSaysWhatItCalls) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const transport::FaultPlan late{.seed = seed, .delay = 400};
    test::run({.size = 4, .links = GetParam(), .faults = late},
              [&](Rank& self) { disagree(self, 10, "seed " + std::to_string(seed)); });
  }
}

TEST_P(Failures, EveryKindOfMismatchIsOne) {
  struct Kind {
    const char* text;
    std::function<void(EngineCall&)> change;
  };
  const Kind kinds[] = {
      {"int32", [](EngineCall& call) { call.dtype = static_cast<uint8_t>(Dtype::kInt32); }},
      {"MAX", [](EngineCall& call) { call.op = ReduceOpCode::kMax; }},
      {"reduce(",
       [](EngineCall& call) { call.name = "reduce", call.operation = Operation::kReduce; }},
      {"with hints", [](EngineCall& call) {
         call.algorithm = schedule::find_algorithm(Operation::kAllReduce, "ring");
       }}};
  for (const auto& kind : kinds)
    run(3, [&](Rank& self) {
      std::vector<float> values(1000, 1);
      AllReduce reduce(values, 3);
      if (self.rank() == 1) kind.change(reduce.call);
      const auto error = error_of([&] {
        self.group->run(reduce.call);  // whoever only sends learns of it in its next call
        self.group->run(barrier(3));
      });
      EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
      expect_text(error, {kind.text, "rank 1 calls"});
      const bool names_hint =
          std::string(error.what()).find("ctran::algorithm") != std::string::npos;
      EXPECT_EQ(names_hint, std::string_view(kind.text) == "with hints") << error.what();
      self.sync();
    });
}

// Nobody sends anything: both wait for the other as the root.
TEST_P(Failures, RootsThatWaitForEachOtherAreFoundOutByAsking) {
  run(2, [](Rank& self) {
    std::vector<float> values(10, 1);
    Message broadcast(Operation::kBroadcast, 1 - self.rank(), values, 2);
    const auto begin = Clock::now();
    const auto error = error_of([&] { self.group->run(broadcast.call); });
    EXPECT_LT(Clock::now() - begin, kSoon);
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    expect_text(error, {"root 0", "root 1"});
    self.sync();
  });
}

// Each sends as the root, and is done: what nobody received is met by a call that is right.
TEST_P(Failures, AMessageOfAnEarlierCollectiveIsNamedWithItsRoot) {
  for (const size_t count : {size_t{10}, size_t{20}})
    run(2, [&](Rank& self) {
      self.group->run(barrier(2));
      std::vector<float> values(10, 1), sums(count, 1);
      Message broadcast(Operation::kBroadcast, self.rank(), values, 2);
      self.group->run(broadcast.call);
      AllReduce reduce(sums, 2);
      const auto error = error_of([&] { self.group->run(reduce.call); });
      EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
      expect_text(error,
                  {"ranks 0, 1 call all_reduce(float32, " + std::to_string(count) + " elements",
                   "received a message of", "broadcast(float32, 10 elements, root ",
                   "as number 2, which rank ", "called with root "});
      self.sync();
    });
}

TEST_P(Failures, ARankThatSkipsAnOperationIsNamed) {
  run(3, [](Rank& self) {
    std::vector<float> values(10, 1);
    AllReduce reduce(values, 3);
    self.group->run(barrier(3));
    const auto error = error_of([&] {
      if (self.rank() != 1) self.group->run(reduce.call);
      self.group->run(barrier(3));
      self.group->run(barrier(3));
    });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    EXPECT_EQ(error.context().peer, 1) << error.what();
    self.sync();
  });
}

// Each knows only its own counts: what differs is seen where two of them meet. Rank 2 expects one
// element too many of rank 1, or too few.
void exchange_other_counts(Rank& self, int64_t each, int64_t more) {
  const auto odd = self.rank() == 2 ? each + more : each;
  const std::vector<int64_t> offsets{0, each, 2 * each, 3 * each};
  const std::vector<int64_t> arriving{0, each, each + odd, 2 * each + odd};
  const std::vector<float> input(static_cast<size_t>(3 * each), 1);
  std::vector<float> output(static_cast<size_t>(arriving.back()));
  const ConstBytes from[] = {bytes_of(input)};
  const Bytes into[] = {bytes_of(output)};
  const EngineCall call{.name = "all_to_all_v_single",
                        .operation = Operation::kAllToAll,
                        .dtype = static_cast<uint8_t>(Dtype::kFloat32),
                        .element_bytes = sizeof(float),
                        .blocks = Blocks::from_offsets(offsets),
                        .arriving = Blocks::from_offsets(arriving),
                        .input = from,
                        .output = into};
  const auto error = error_of([&] {
    self.group->run(call);  // whose own part fits may be done with it
    self.group->run(barrier(3));
  });
  EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
  const auto expected = "rank 2 expects " + std::to_string(4 * (each + more)) +
                        " bytes of rank 1, which sends " + std::to_string(4 * each);
  const auto sent = "rank 1 sends " + std::to_string(4 * each) + " bytes to rank 2, which";
  const std::string text = error.what();
  EXPECT_TRUE(text.find(expected) != text.npos || (more < 0 && text.find(sent) != text.npos))
      << text;
  self.sync();
}

TEST_P(Failures, CountsThatDoNotMeetAreSaidByAllRanks) {
  for (const int64_t each : {5, 4'000, 300'000})
    for (const int64_t more : {1, -1})
      run(3, [&](Rank& self) { exchange_other_counts(self, each, more); });
}

// An all_to_all of two ranks with counts of their own.
struct Exchange {
  std::vector<int64_t> offsets, arriving;
  std::vector<float> input, output;
  ConstBytes from = bytes_of(std::as_const(input));
  Bytes into = bytes_of(output);
  EngineCall call{.name = "all_to_all_v_single",
                  .operation = Operation::kAllToAll,
                  .dtype = static_cast<uint8_t>(Dtype::kFloat32),
                  .element_bytes = sizeof(float),
                  .blocks = Blocks::from_offsets(offsets),
                  .arriving = Blocks::from_offsets(arriving),
                  .input = {&from, 1},
                  .output = {&into, 1},
                  .timeout = kLong};
  Exchange(int64_t to_0, int64_t to_1, int64_t of_0, int64_t of_1)
      : offsets{0, to_0, to_0 + to_1},
        arriving{0, of_0, of_0 + of_1},
        input(static_cast<size_t>(offsets.back()), 1),
        output(static_cast<size_t>(arriving.back())) {}
  Exchange(const Exchange&) = delete;
};

// Nothing meets: whoever is left waiting asks.
TEST_P(Failures, ACountThatOneRankTakesForNoneIsSaidByBoth) {
  run(2, [&](Rank& self) {
    const bool waits = self.rank() == 1;
    Exchange exchange(1, waits ? 1 : 0, waits ? 5 : 1, 1);
    const auto error = error_of([&] {
      self.group->run(exchange.call);
      self.group->run(barrier(2));
    });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    expect_text(error, {"rank 1 expects 20 bytes of rank 0, which sends 0"});
    self.sync();
  });
  run(2, [&](Rank& self) {
    const bool waits = self.rank() == 0;
    Exchange exchange(1, waits ? 2'000'000 : 1, waits ? 1 : 0, 1);
    if (!waits) self.group->run(exchange.call);
    if (waits) {
      const auto error = error_of([&] { self.group->run(exchange.call); });
      EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
      expect_text(error, {"rank 1 expects 0 bytes of rank 0, which sends 8000000"});
    }
    self.sync();
  });
}

TEST_P(Failures, MessagesOfOtherSizesOrDtypesFailOnBothSides) {
  for (const size_t count : {5u, 300'000u})
    run(2, [&](Rank& self) {
      std::vector<float> payload(self.rank() == 0 ? count : count - 1);
      Message message(self.rank() == 0 ? Operation::kSend : Operation::kReceive, 1 - self.rank(),
                      payload, 2);
      const auto error = error_of([&] {
        self.group->run(message.call);
        self.group->run(barrier(2));
      });
      EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
      self.sync();
    });
}

// The last rank's context ends without a message, as a process does.
TEST_P(Failures, APeersEndIsNamedByAllWithinASecondAlsoByThoseThatWaitForAnother) {
  run(4, [](Rank& self) {
    std::vector<float> values(1000, 1);
    AllReduce reduce(values, 4);
    reduce.call.algorithm = schedule::find_algorithm(Operation::kAllReduce, "ring");
    self.group->run(reduce.call);
    self.sync();
    if (self.rank() == 3) return self.group->link_context()->shut_down();
    const auto begin = Clock::now();
    const auto error = error_of([&] {
      self.group->run(reduce.call);
      self.group->run(reduce.call);
    });
    EXPECT_LT(Clock::now() - begin, kSoon);
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().peer, 3) << error.what();
    expect_text(error, {"rank 3", "all_reduce", "'test'"});
    expect_sticky(*self.group, Errc::kPeerFailed);
  });
}

TEST_P(Failures, APeersEndLeavesGroupsWithoutItAlone) {
  run(3, [](Rank& self) {
    const int two[] = {0, 1};
    const auto pair = self.rank() < 2 ? self.group->split(two, "pair") : nullptr;
    self.group->run(barrier(3));
    self.sync();
    if (self.rank() == 2) return self.group->link_context()->shut_down();
    EXPECT_EQ(error_of([&] { self.group->run(barrier(3)); }).code(), Errc::kPeerFailed);
    for (int i = 0; i < 10; ++i) pair->run(barrier(2));
  });
}

TEST_P(Failures, ACallPastItsLimitSaysWhoHasNotDelivered) {
  run(3, [](Rank& self) {
    if (self.rank() == 1) return self.sync();
    std::vector<float> values(10, 1);
    AllReduce reduce(values, 3);
    reduce.call.timeout = {milliseconds(100), "timeout= of that call"};
    auto behind = barrier(3);
    behind.timeout = {kLong, "the default"};
    auto work = self.group->start(reduce.call);
    auto queued = self.group->start(behind);
    const auto begin = Clock::now();
    const auto error = error_of([&] { work.wait(); });
    EXPECT_LT(Clock::now() - begin, kSoon);
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    expect_text(error, {"all_reduce(float32, 10 elements", "100 ms, timeout= of that call; ", "1",
                        "rank 1 is 1 collective behind, since number 1",
                        "rank 1: before the first collective"});
    EXPECT_EQ(error.context().peer, 1) << error.what();
    const auto next = error_of([&] { queued.wait(); });
    EXPECT_EQ(next.why(), error.why());  // not with its own limit
    EXPECT_EQ(next.code(), Errc::kTimeout);
    expect_sticky(*self.group, Errc::kTimeout);
    std::fill(values.begin(), values.end(), -5.0f);  // it is ours again
    self.sync();
    EXPECT_EQ(values, std::vector<float>(10, -5));
  });
}

TEST_P(Failures, ALimitThatIsSpentInPartIsSaidWhole) {
  run(2, [](Rank& self) {
    if (self.rank() == 1) return self.sync();
    auto failing = barrier(2);
    failing.timeout = {kLong, "the default"};
    failing.timeout.elapsed = kLong - milliseconds(100);
    const auto begin = Clock::now();
    const auto error = error_of([&] { self.group->run(failing); });
    EXPECT_LT(Clock::now() - begin, kSoon);
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    expect_text(error, {"within its timeout of 20000 ms, the default"});
    EXPECT_EQ(error.context().limit, kLong);
    self.sync();
  });
}

TEST_P(Failures, AnAbortEndsItsGroupHereAndThereAndNoOther) {
  run(2, [](Rank& self) {
    const int all[] = {0, 1};
    const auto doomed = self.group->split(all, "doomed");
    std::vector<float> values(2'000'000, 1);
    Message receive(Operation::kReceive, 1 - self.rank(), values, 2);
    auto waiting = doomed->start(receive.call);
    self.sync();
    if (self.rank() == 0) {
      std::thread aborter([&] { doomed->abort("because"); });
      const auto begin = Clock::now();
      const auto error = error_of([&] { doomed->run(barrier(2)); });
      EXPECT_LT(Clock::now() - begin, kSoon);
      EXPECT_EQ(error.code(), Errc::kAborted) << error.what();
      expect_text(error, {"because", "'doomed'"});
      aborter.join();
      EXPECT_EQ(error_of([&] { waiting.wait(); }).code(), Errc::kAborted);
      expect_sticky(*doomed, Errc::kAborted);
    } else {
      const auto error = error_of([&] { waiting.wait(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      expect_text(error, {"rank 0 aborted", "because"});
    }
    for (int i = 0; i < 10; ++i) self.group->run(barrier(2));
  });
}

TEST_P(Failures, AMismatchThatIsFoundBesideTheGroupIsOneOnAllItsMembers) {
  run(3, [](Rank& self) {
    const int all[] = {0, 1, 2};
    const auto doomed = self.group->split(all, "doomed");
    if (self.rank() == 0)
      doomed->abort(CommError(Errc::kMismatch, "rank 2 was elsewhere", {.op = "all", .peer = 2}));
    const auto error = error_of([&] { doomed->run(barrier(3)); });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    EXPECT_EQ(error.context().peer, 2);
    expect_text(error, {"rank 2 was elsewhere", "'doomed'"});
    expect_sticky(*doomed, Errc::kMismatch);
    for (int i = 0; i < 10; ++i) self.group->run(barrier(3));
  });
}

TEST_P(Failures, WhatAMemberThatLeftWillNeverDoFails) {
  run(3, [](Rank& self) {
    const int all[] = {0, 1, 2};
    auto child = self.group->split(all, "child");
    std::vector<float> values(50'000, 1);
    AllReduce reduce(values, 3);
    child->run(reduce.call);
    if (self.rank() == 2) child.reset();  // at once: what it sent before still arrives
    if (child) {
      const auto error = error_of([&] { child->run(reduce.call); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      expect_text(error, {"rank 2 has closed the communicator"});
    }
    self.group->run(barrier(3));
  });
}

// Until this member knows of these that they rest.
void await_rest(EngineGroup& group, uint32_t ranks) {
  const auto observer = group.observer();
  const auto until = Clock::now() + kLong;
  while (observer.quiesced_ranks() != ranks && Clock::now() < until) {
    EXPECT_FALSE(group.poll_failure());
    std::this_thread::yield();
  }
  EXPECT_EQ(observer.quiesced_ranks(), ranks);
}

TEST_P(Failures, WhoRestsIsKnownToThoseWhoLiveOnAndHarmsNobody) {
  run(3, [](Rank& self) {
    self.group->run(barrier(3));
    if (self.rank() == 2) {
      self.group->announce_quiesced();
      self.group->announce_quiesced();
    } else {
      await_rest(*self.group, 1u << 2);
    }
    self.group->run(barrier(3));
  });
}

TEST_P(Failures, ASplitWithAMemberThatHasLeftFails) {
  for (int round = 0; round < 20; ++round)
    run(3, [](Rank& self) {
      const int all[] = {0, 1, 2}, two[] = {2, 0};
      // Who leaves at once has done its part of it.
      const auto child = self.group->split(all, "child", kLong);
      if (self.rank() == 2) self.group->announce_leave();
      if (self.rank() == 0) {
        const auto begin = Clock::now();
        const auto error =
            error_of([&] { static_cast<void>(self.group->split(two, "pair", kLong)); });
        EXPECT_LT(Clock::now() - begin, kSoon);
        EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
        expect_text(error, {"rank 2 has closed the communicator"});
        EXPECT_EQ(error.context().peer, 2);
      }
      child->run(barrier(3));
      self.sync();
    });
}

TEST_P(Failures, WhatAMemberHadSentAndReceivedBeforeItLeftIsDone) {
  for (const size_t count : {size_t{5}, size_t{20'000}, size_t{2'000'000}})
    for (int round = 0; round < 10; ++round)
      run(2, [&](Rank& self) {
        const int all[] = {0, 1};
        auto child = self.group->split(all, "child");
        std::vector<float> payload(count, static_cast<float>(self.rank()));
        const bool sends = self.rank() == round % 2;
        Message message(sends ? Operation::kSend : Operation::kReceive, 1 - self.rank(), payload,
                        2);
        message.call.tag = round % 3;
        child->run(message.call);
        EXPECT_EQ(payload, std::vector<float>(count, static_cast<float>(round % 2)));
        child.reset();
        self.group->run(barrier(2));
      });
}

// Rank 1 sends with another tag, takes nothing with that of the large one, and leaves.
TEST_P(Failures, MessagesOfOtherTagsKeepNoneFromFailingWhenTheirPeerLeaves) {
  for (const bool receives : {true, false})
    run(2, [&](Rank& self) {
      std::vector<float> payload(4), large(2'000'000);
      const auto message = [&](Operation operation, std::vector<float>& values, int tag) {
        auto created = std::make_unique<Message>(operation, 1 - self.rank(), values, 2);
        created->call.tag = tag;
        return created;
      };
      if (self.rank() == 1) {
        if (receives) self.group->run(message(Operation::kSend, payload, 7)->call);
        if (!receives) self.group->run(message(Operation::kReceive, payload, 7)->call);
        self.group->announce_leave();
        return self.sync();
      }
      const auto begin = Clock::now();
      auto failing = self.group->start(receives ? message(Operation::kReceive, payload, 0)->call
                                                : message(Operation::kSend, large, 0)->call);
      if (!receives) self.group->run(message(Operation::kSend, payload, 7)->call);
      const auto error = error_of([&] { failing.wait(); });
      EXPECT_LT(Clock::now() - begin, kSoon);
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      expect_text(error, {"rank 1 has closed the communicator"});
      self.sync();
    });
}

// While one other is there, its message may come.
TEST_P(Failures, AReceiveFromAnybodyFailsWhenEverybodyHasLeft) {
  run(3, [](Rank& self) {
    std::vector<float> values(4, static_cast<float>(self.rank()));
    self.group->run(barrier(3));
    if (self.rank() == 2) {
      Message send(Operation::kSend, 0, values, 3);
      self.group->run(send.call);
    }
    if (self.rank() == 0) {
      Message receive(Operation::kReceive, kAnySource, values, 3);
      auto from_two = self.group->start(receive.call), from_none = self.group->start(receive.call);
      from_two.wait();
      EXPECT_EQ(from_two.source(), 2);
      const auto error = error_of([&] { from_none.wait(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(from_none.source(), kAnySource);
    }
    self.group.reset();
  });
}

// A message in flight, and its memory.
struct StartedMessage {
  StartedMessage(Rank& self, Operation operation, int peer, size_t count, int tag = 0)
      : values(count, static_cast<float>(self.rank())),
        message(operation, peer, values, self.size()) {
    message.call.tag = tag;
    work = self.group->start(message.call);
  }
  StartedMessage(const StartedMessage&) = delete;

  void expect_closed() {
    const auto error = error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    expect_text(error, {"has closed the communicator", "nothing more", "before finalize()"});
  }

  std::vector<float> values;
  Message message;
  EngineWork work;
};

constexpr size_t kLarge = 2'000'000;  // elements: not sent before its receive is there

// Also where no link was made before.
TEST_P(Failures, ReceivesThatWaitForEachOtherEndWhenAllLeave) {
  for (const int size : {2, 3})
    for (const int eager_ranks : {16, 0})
      test::run({.size = size, .links = GetParam(), .eager_ranks = eager_ranks}, [](Rank& self) {
        StartedMessage failing(self, Operation::kReceive, (self.rank() + 1) % self.size(), 4);
        StartedMessage large(self, Operation::kReceive, (self.rank() + 1) % self.size(), kLarge, 3);
        self.sync();
        self.group->announce_leave();
        failing.expect_closed();
        large.expect_closed();
        EXPECT_FALSE(self.group->failure());
        self.sync();
      });
}

TEST_P(Failures, SendsAndReceivesWithoutAPartnerEndWhenAllLeave) {
  for (const bool receives : {false, true})
    run(3, [&](Rank& self) {
      const int next = (self.rank() + 1) % self.size();
      std::optional<StartedMessage> receive;
      if (receives) receive.emplace(self, Operation::kReceive, next, 4, 10);
      StartedMessage send(self, Operation::kSend, next, kLarge, self.rank());
      self.sync();
      self.group->announce_leave();
      if (receive) receive->expect_closed();
      send.expect_closed();
      EXPECT_FALSE(self.group->failure());
      self.sync();
    });
}

TEST_P(Failures, MessagesThatWereSentBeforeTheirSenderLeftArriveAfterOneThatWasNot) {
  for (const size_t count : {size_t{4}, kLarge})
    run(2, [&](Rank& self) {
      if (self.rank() == 1) {
        StartedMessage sent(self, Operation::kSend, 0, count),
            failing(self, Operation::kReceive, 0, 4);
        self.group->announce_leave();
        self.sync();
        EXPECT_NO_THROW(sent.work.wait());
        EXPECT_FALSE(failing.work.done());
        self.sync();  // the other one may still send
        EXPECT_NO_THROW(failing.work.wait());
        return self.sync();
      }
      StartedMessage failing(self, Operation::kReceive, 1, 4, 7);
      self.sync();
      failing.expect_closed();
      EXPECT_FALSE(self.group->failure());
      StartedMessage received(self, Operation::kReceive, 1, count);
      EXPECT_NO_THROW(received.work.wait());
      EXPECT_EQ(received.values, std::vector<float>(count, 1));
      self.sync();
      StartedMessage late(self, Operation::kSend, 1, 4);
      EXPECT_NO_THROW(late.work.wait());
      self.sync();
    });
}

TEST_P(Failures, ACollectiveAndASplitEndWhereAMemberLeavesWithAReceiveOpen) {
  for (const bool splits : {false, true})
    run(3, [&](Rank& self) {
      if (self.rank() == 1) {
        StartedMessage failing(self, Operation::kReceive, 0, 4);
        self.group->announce_leave();
        self.sync();
        const auto error = error_of([&] { failing.work.wait(); });
        EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
        return self.sync();
      }
      self.sync();
      const int all[] = {0, 1, 2};
      const auto error = error_of([&] {
        if (splits)
          static_cast<void>(self.group->split(all, "child", kLong));
        else
          self.group->run(barrier(3));
      });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      expect_text(error, {"rank 1 has closed the communicator"});
      self.sync();
    });
}

// Rank 1 has taken its part, and does not come to the collective.
TEST_P(Failures, ALargeMessageOnItsWayArrivesBeforeACollectiveFails) {
  for (int round = 0; round < 10; ++round)
    run(2, [&](Rank& self) {
      const bool sends = self.rank() == round % 2;
      StartedMessage message(self, sends ? Operation::kSend : Operation::kReceive, 1 - self.rank(),
                             kLarge);
      if (self.rank() == 1) {
        self.group->announce_leave();
        EXPECT_NO_THROW(message.work.wait());
        return self.sync();
      }
      const auto error = error_of([&] { self.group->run(barrier(2)); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_NO_THROW(message.work.wait());
      EXPECT_EQ(message.values, std::vector<float>(kLarge, static_cast<float>(round % 2)));
      self.sync();
    });
}

TEST_P(Failures, WhoHasLeftAndStillWaitsHearsOfADeath) {
  for (const int eager_ranks : {16, 0})
    test::run({.size = 3, .links = GetParam(), .eager_ranks = eager_ranks}, [](Rank& self) {
      self.group->run(barrier(3));
      const int awaited = self.rank() == 0 ? 2 : 0;
      StartedMessage waiting(self, Operation::kReceive, awaited, 4);
      if (self.rank() == 1) self.group->announce_leave();
      self.sync();
      if (self.rank() == 2) {
        self.group->link_context()->shut_down();
        return self.sync();
      }
      const auto begin = Clock::now();
      const auto error = error_of([&] { waiting.work.wait(); });
      EXPECT_LT(Clock::now() - begin, kSoon);
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(error.context().peer, 2) << error.what();
      expect_text(error, {"rank 2 has failed: "});
      self.sync();
    });
}

// Each group that is in use hears of it, and all do soon.
TEST_P(Failures, ADeathIsToldToHundredsOfGroupsSoon) {
  run(4, [](Rank& self) {
    const int all[] = {0, 1, 2, 3};
    std::vector<std::unique_ptr<EngineGroup>> groups;
    for (int i = 0; i < 300; ++i) groups.push_back(self.group->split(all, "one of many"));
    std::vector<EngineWork> works;
    for (const auto& group : groups)
      if (self.rank() != 3) works.push_back(group->start(barrier(4)));
    self.sync();
    if (self.rank() == 3) return self.group->link_context()->shut_down();
    const auto begin = Clock::now();
    for (auto& work : works) {
      const auto error = error_of([&] { work.wait(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(error.context().peer, 3) << error.what();
    }
    EXPECT_LT(Clock::now() - begin, kSoon);
  });
}

TEST_P(Failures, ReceivesFromAnybodyEndWhenAllLeave) {
  run(3, [](Rank& self) {
    StartedMessage failing(self, Operation::kReceive, kAnySource, 4);
    self.sync();
    self.group->announce_leave();
    failing.expect_closed();
    self.sync();
  });
}

TEST_P(Failures, DestroyingAGroupEndsItsWorks) {
  run(2, [](Rank& self) {
    const int all[] = {0, 1};
    auto child = self.group->split(all, "child");
    std::vector<float> values(100, 1);
    Message receive(Operation::kReceive, 1 - self.rank(), values, 2);
    auto work = child->start(receive.call);
    if (self.rank() == 1) {
      self.sync();
      return self.group->run(barrier(2));
    }
    child.reset();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(error_of([&] { work.wait(); }).code(), Errc::kFinalized);
    self.sync();
    self.group->run(barrier(2));
  });
}

TEST_P(Failures, AWorkMayOutliveItsFamily) {
  EngineWork kept[2];
  run(2, [&](Rank& self) {
    std::vector<float> values(100, 1);
    AllReduce reduce(values, 2);
    kept[self.rank()] = self.group->start(reduce.call);
    kept[self.rank()].wait();
    self.group.reset();
  });
  for (auto& work : kept) EXPECT_NO_THROW(work.wait());
}

INSTANTIATE_TEST_SUITE_P(Links, Failures, testing::Values(LinkPolicy::kShm, LinkPolicy::kTcp),
                         [](const auto& info) {
                           return info.param == LinkPolicy::kShm ? "shm" : "tcp";
                         });

TEST(Forked, ChildrenRaiseAndTouchNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread checker does not follow a fork of many threads";
#endif
  run({.size = 2}, [](Rank& self) {
    std::vector<float> values(100, 1);
    AllReduce reduce(values, 2);
    self.group->start(reduce.call).wait();
    self.sync();
    if (self.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        bool right = false;
        try {
          self.group->run(reduce.call);
        } catch (const CommError& error) {
          right = error.code() == Errc::kForked;
        }
        self.group.reset();
        ::_exit(right ? 0 : 1);
      }
      int status = -1;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    self.sync();
    self.group->run(reduce.call);
    EXPECT_EQ(values, std::vector<float>(100, 4));
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
