#include <sys/resource.h>
#include <unistd.h>

#include "ctran/engine/engines.hpp"

// "Where is every rank?" is answered whatever a rank is doing.
namespace torch::comms::ctran::test {
namespace {

void expect_text(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

// Rank 1 is in no call, and no thread of the program makes progress there.
void expect_report(const World& world, const schedule::Algorithm* algorithm) {
  run(world, [&](Rank& self) {
    const int size = self.size();
    self.group->run(barrier(size));
    self.sync();
    if (self.rank() == 1) return self.sync();
    std::vector<float> values(10, 1);
    AllReduce reduce(values, size);
    reduce.call.algorithm = algorithm;
    reduce.call.timeout = milliseconds(50);
    const auto error = error_of([&] { self.group->run(reduce.call); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().peer, 1) << error.what();
    expect_text(error.what(), {"50 ms", "rank 1 is 1 collective behind, since number 2",
                               "rank 1: in no collective, after barrier() as number 1",
                               "in all_reduce(float32, 10 elements, SUM", "as number 2 (40 bytes)",
                               "after number 1"});
    EXPECT_EQ(std::string(error.what()).find("did not answer"), std::string::npos) << error.what();
    self.sync();
  });
}

TEST(Whereabouts, ARankOutsideOfCallsAnswers) {
  for (const auto links : {LinkPolicy::kShm, LinkPolicy::kTcp})
    expect_report({.size = 4, .links = links}, nullptr);
}

// Those who are outside, and those who have ended, are all at fault.
TEST(Whereabouts, SeveralAtFaultAreAllNamed) {
  run({.size = 5}, [](Rank& self) {
    self.group->run(barrier(5));
    self.sync();
    if (self.rank() == 1 || self.rank() == 4) return self.sync();
    auto late = barrier(5);
    late.timeout = milliseconds(50);
    const auto error = error_of([&] { self.group->run(late); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().culprits, (std::vector{1, 4})) << error.what();
    EXPECT_EQ(error.context().peer, -1);
    EXPECT_EQ(error.context().limit, milliseconds(50));
    EXPECT_EQ(error.context().seq, 2u);
    const auto later = error_of([&] { self.group->run(barrier(5)); });
    EXPECT_EQ(later.context().culprits, (std::vector{1, 4})) << later.what();
    self.sync();
  });
}

// Rank 2 alone has a limit that passes: the others hear from it whose fault it was.
TEST(Whereabouts, ThoseAtFaultAreToldToWhoeverHearsOfIt) {
  run({.size = 5, .links = LinkPolicy::kTcp}, [](Rank& self) {
    self.group->run(barrier(5));
    self.sync();
    if (self.rank() == 1 || self.rank() == 4) return self.sync();
    auto late = barrier(5);
    if (self.rank() == 2) late.timeout = milliseconds(50);
    const auto error = error_of([&] { self.group->run(late); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().culprits, (std::vector{1, 4})) << error.what();
    self.sync();
  });
}

// Connected on first use, each rank with its neighbours: the question is passed on.
TEST(Whereabouts, RanksThatAreNotLinkedAreAskedByOthers) {
  for (const auto links : {LinkPolicy::kShm, LinkPolicy::kTcp})
    for (const int size : {6, 33})
      expect_report({.size = size, .links = links, .eager_ranks = 0},
                    schedule::find_algorithm(Operation::kAllReduce, "ring"));
}

// Lets the process open no more descriptors while it lives.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    auto lower = before_;
    const int next = ::dup(0);
    lower.rlim_cur = static_cast<rlim_t>(next);
    ::close(next);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;

 private:
  rlimit before_ = {};
};

// The ring has made its links; those that the question alone would need fail.
TEST(Whereabouts, AQuestionThatCannotBePassedOnEveryLinkEnds) {
  std::optional<DescriptorLimit> limit;
  run({.size = 6, .links = LinkPolicy::kTcp, .eager_ranks = 0, .query_timeout = milliseconds(500)},
      [&](Rank& self) {
        std::vector<float> values(10, 1);
        AllReduce reduce(values, 6);
        reduce.call.algorithm = schedule::find_algorithm(Operation::kAllReduce, "ring");
        self.group->run(reduce.call);
        self.sync();
        if (self.rank() == 0) limit.emplace();
        self.sync();
        if (self.rank() != 1) {
          reduce.call.timeout = milliseconds(50);
          const auto error = error_of([&] { self.group->run(reduce.call); });
          EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
          expect_text(error.what(), {"as number 2", "where the ranks were: "});
        }
        self.sync();
        if (self.rank() == 0) limit.reset();
        self.sync();
      });
}

// Rank 0 has a link to it for the question alone, which ends with it.
TEST(Whereabouts, ARankThatHasLeftAndEndedIsNotTakenForOneThatFailed) {
  for (const auto links : {LinkPolicy::kShm, LinkPolicy::kTcp})
    run({.size = 6, .links = links, .eager_ranks = 0, .query_timeout = milliseconds(500)},
        [](Rank& self) {
          std::vector<float> values(10, 1);
          AllReduce reduce(values, 6);
          reduce.call.algorithm = schedule::find_algorithm(Operation::kAllReduce, "ring");
          self.group->run(reduce.call);
          self.sync();
          if (self.rank() == 2) self.group.reset();
          self.sync();
          if (self.group && self.rank() == 0) {
            reduce.call.timeout = milliseconds(50);
            const auto error = error_of([&] { self.group->run(reduce.call); });
            EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
            expect_text(error.what(), {"rank 2: it has closed the communicator"});
          }
          self.sync();
        });
}

// Rank 2 has not made the group yet, as where a split ends early on the others.
TEST(Whereabouts, ARankThatHasNoSuchGroupYetSaysSo) {
  const auto engines = engines_of(3);
  std::vector<std::shared_ptr<GroupState>> groups;
  for (int rank = 0; rank < 2; ++rank) {
    auto& engine = engines[static_cast<size_t>(rank)];
    groups.push_back(
        std::make_shared<GroupState>(engine, "early", std::vector<int>{0, 1, 2}, uint32_t{16}));
    engine->add_group(groups.back());
  }
  auto late = barrier(3);
  late.timeout = milliseconds(50);
  auto* task = start_collective(groups[0], late);
  engines[0]->wait(*task);
  ASSERT_NE(task->error, nullptr);
  EXPECT_EQ(task->error->code(), Errc::kTimeout) << task->error->what();
  EXPECT_EQ(task->error->context().culprits, (std::vector{1, 2}));
  expect_text(task->error->what(),
              {"rank 1: before the first collective", "rank 2: not in this communicator"});
  task->release();
  shut_down(engines);
}

TEST(Whereabouts, AMessageThatIsLateSaysWhereItsPeerIs) {
  run({.size = 3}, [](Rank& self) {
    self.group->run(barrier(3));
    self.sync();
    std::vector<float> payload(3);
    if (self.rank() == 0) {
      Message receive(Operation::kReceive, 1, payload, 3);
      receive.call.timeout = milliseconds(50);
      const auto error = error_of([&] { self.group->run(receive.call); });
      EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
      expect_text(error.what(), {"of 12 bytes from rank 1", "ranks 1, 2: in no collective, after"});
    }
    self.sync();
  });
}

// Rank 1 is in no call, and may notice the end first.
TEST(Whereabouts, APeersEndIsToldWithWhereTheOthersAre) {
  run({.size = 3}, [](Rank& self) {
    self.group->run(barrier(3));
    EngineWork work;
    if (self.rank() == 0) work = self.group->start(barrier(3));
    self.sync();
    if (self.rank() == 2) self.group->link_context()->shut_down();
    if (self.rank() == 0) {
      const auto error = error_of([&] { work.wait(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(error.context().peer, 2) << error.what();
      expect_text(error.what(), {"rank 2: its process or connection has failed",
                                 "rank 0: in barrier() as number 2, after number 1",
                                 "rank 1: in no collective, after barrier() as number 1"});
    }
    self.sync();
  });
}

// All that are gone when it is told are culprits, and the first one is the peer.
TEST(Whereabouts, SeveralPeersThatEndAreAllCulprits) {
  run({.size = 4}, [](Rank& self) {
    self.group->run(barrier(4));
    EngineWork work;
    if (self.rank() == 0) work = self.group->start(barrier(4));
    self.sync();
    if (self.rank() == 2) self.group->link_context()->shut_down();
    if (self.rank() == 1) self.group->link_context()->shut_down();
    if (self.rank() == 0) {
      const auto error = error_of([&] { work.wait(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      auto culprits = error.context().culprits;
      EXPECT_EQ(error.context().peer, culprits.empty() ? -1 : culprits[0]);
      std::ranges::sort(culprits);
      EXPECT_EQ(culprits, (std::vector{1, 2})) << error.what();
    }
    self.sync();
  });
}

// One short call after the other, of a group of its own: each has ended before anybody could ask.
TEST(Whereabouts, ARankThatIsBusyElsewhereAnswers) {
  std::atomic<bool> over{false};
  run({.size = 2}, [&](Rank& self) {
    self.group->run(barrier(2));
    if (self.rank() == 0) {
      const int itself[] = {0};
      const auto own = self.group->split(itself, "own");
      self.sync();
      while (!over) own->run(barrier(1));
      return self.sync();
    }
    self.sync();
    auto late = barrier(2);
    late.timeout = milliseconds(50);
    const auto error = error_of([&] { self.group->run(late); });
    over = true;
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    expect_text(error.what(), {"rank 0: in no collective, after barrier() as number 1"});
    self.sync();
  });
}

// The root's small broadcasts leave at once, without anything under way beside them.
TEST(Whereabouts, CallsThatEndAtOnceAreFinished) {
  run({.size = 2}, [](Rank& self) {
    std::vector<float> values(3, 1);
    Simple broadcast(Operation::kBroadcast, Blocks::even(3, 2), bytes_of(std::as_const(values)),
                     bytes_of(values), sizeof(float));
    for (int i = 0; i < 3; ++i) self.group->run(broadcast.call);
    self.sync();
    if (self.rank() == 1) {
      auto late = barrier(2);
      late.timeout = milliseconds(50);
      const auto error = error_of([&] { self.group->run(late); });
      expect_text(error.what(), {"rank 0: in no collective, after broadcast(", "as number 3"});
    }
    self.sync();
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
