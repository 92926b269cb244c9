#include "ctran/engine/whereabouts.hpp"

#include "ctran/engine/world.hpp"

// "Where is every rank?": its text, and that it is answered whatever a rank is doing.
namespace torch::comms::ctran::test {
namespace {

Fingerprint print(uint64_t sequence, std::string_view name = "all_reduce") {
  Fingerprint made;
  made.sequence = sequence;
  name.copy(made.name, sizeof made.name - 1);
  made.operation = static_cast<uint8_t>(Operation::kAllReduce);
  made.dtype = static_cast<uint8_t>(Dtype::kFloat32);
  made.element_bytes = 4;
  made.count = 1000;
  return made;
}

Whereabouts at(uint64_t called, uint64_t finished) {
  return {.called = called,
          .finished = finished,
          .print = print(called > finished ? finished + 1 : finished)};
}

void expect_text(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(Whereabouts, RanksAreNamedAsRanges) {
  EXPECT_EQ(ranks_text(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector{0, 1}), "ranks 0, 1");
  EXPECT_EQ(ranks_text(std::vector{0, 1, 2, 4, 8, 9}), "ranks 0-2, 4, 8, 9");
}

TEST(Whereabouts, SayWhatWasEnteredAndWhatWasFinished) {
  EXPECT_EQ(Whereabouts{}.words(true), "before the first collective");
  EXPECT_EQ(at(7, 6).words(false),
            "in all_reduce(float32, 1000 elements) as number 7 (4000 bytes), after number 6");
  EXPECT_EQ(at(9, 6).words(false),
            "in all_reduce(float32, 1000 elements) as number 7 (4000 bytes), with 2 more called, "
            "after number 6");
  EXPECT_EQ(at(6, 6).words(false),
            "in no collective, after all_reduce(float32, 1000 elements) as number 6 (4000 bytes)");
  auto receiving = at(0, 0);
  receiving.asides_called = 3;
  receiving.asides_finished = 2;
  receiving.aside = {.name = "recv", .bytes = 12, .messages = 1, .peer = 5};
  EXPECT_EQ(receiving.words(false), "before the first collective; in recv of 12 bytes from rank 5");
  receiving.asides_finished = 3;
  EXPECT_EQ(receiving.words(false), "before the first collective");
  EXPECT_EQ(receiving.words(true),
            "before the first collective; after recv of 12 bytes from rank 5");
}

TEST(Whereabouts, TheOneWhoIsBehindIsTheCulprit) {
  Sighting seen{.size = 5, .number = 7, .waited = milliseconds(500)};
  for (const int rank : {0, 1, 2, 4}) seen.places[rank] = at(7, 6);
  seen.places[3] = at(5, 5);
  EXPECT_EQ(seen.culprit(), 3);
  expect_text(seen.words(), {"rank 3 is 2 collectives behind, since number 6",
                             "where the ranks were: rank 3: in no collective, after ",
                             "; ranks 0-2, 4: in all_reduce("});
  seen.places.erase(4);
  EXPECT_EQ(seen.culprit(), -1);  // it may be either
  expect_text(seen.words(), {"rank 4 did not answer within 500 ms"});
  seen.places[3] = at(7, 6);
  EXPECT_EQ(seen.culprit(), 4);
}

TEST(Whereabouts, ThousandsOfRanksStayReadable) {
  Sighting seen{.size = 10'000, .number = 9, .waited = milliseconds(500)};
  for (int rank = 0; rank < seen.size; ++rank) {
    if (rank % 1000 == 17) continue;
    seen.places[rank] = at(rank % 500 == 3 ? 4 + static_cast<uint64_t>(rank / 500) % 5 : 9, 8);
    if (rank % 100 == 50) {
      seen.places[rank].asides_called = 1;
      seen.places[rank].aside = {.name = "recv", .bytes = 4, .messages = 1, .peer = rank - 1};
    }
  }
  const auto text = seen.words();
  EXPECT_LT(text.size(), 3000u) << text;
  expect_text(text, {"ranks 17, 1017, 2017", "did not answer within 500 ms", "behind, since number",
                     "elsewhere"});
}

// Rank 1 is in no call, and no thread of the program makes progress there.
void expect_report(const World& world, const schedule::Algorithm* algorithm) {
  run(world, [&](Rank& self) {
    const int size = self.size();
    self.group->run(barrier(size));
    self.meet();
    if (self.rank() == 1) return self.meet();
    std::vector<float> values(10, 1);
    AllReduce reduce(values, size);
    reduce.call.algorithm = algorithm;
    reduce.call.limit = milliseconds(50);
    const auto error = error_of([&] { self.group->run(reduce.call); });
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    EXPECT_EQ(error.context().peer, 1) << error.what();
    expect_text(error.what(), {"50 ms", "rank 1 is 1 collective behind, since number 2",
                               "rank 1: in no collective, after barrier() as number 1",
                               "in all_reduce(float32, 10 elements, SUM", "as number 2 (40 bytes)",
                               "after number 1"});
    EXPECT_EQ(std::string(error.what()).find("did not answer"), std::string::npos) << error.what();
    self.meet();
  });
}

TEST(Whereabouts, ARankOutsideOfCallsAnswers) {
  for (const auto links : {Links::kShm, Links::kTcp})
    expect_report({.size = 4, .links = links}, nullptr);
}

// Connected on first use, each rank with its neighbours: the question is passed on.
TEST(Whereabouts, RanksThatAreNotLinkedAreAskedByOthers) {
  for (const auto links : {Links::kShm, Links::kTcp})
    expect_report({.size = 6, .links = links, .eager_ranks = 0},
                  schedule::find_algorithm(Operation::kAllReduce, "ring"));
}

TEST(Whereabouts, AMessageThatIsLateSaysWhereItsPeerIs) {
  run({.size = 3}, [](Rank& self) {
    self.group->run(barrier(3));
    self.meet();
    std::vector<float> mail(3);
    if (self.rank() == 0) {
      Message receive(Operation::kReceive, 1, mail, 3);
      receive.call.limit = milliseconds(50);
      const auto error = error_of([&] { self.group->run(receive.call); });
      EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
      expect_text(error.what(), {"of 12 bytes from rank 1", "ranks 1, 2: in no collective, after"});
    }
    self.meet();
  });
}

// Rank 1 is in no call, and may notice the end first.
TEST(Whereabouts, APeersEndIsToldWithWhereTheOthersAre) {
  run({.size = 3}, [](Rank& self) {
    self.group->run(barrier(3));
    Work work;
    if (self.rank() == 0) work = self.group->start(barrier(3));
    self.meet();
    if (self.rank() == 2) self.group->family()->break_off();
    if (self.rank() == 0) {
      const auto error = error_of([&] { work.wait(); });
      EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
      EXPECT_EQ(error.context().peer, 2) << error.what();
      expect_text(error.what(), {"rank 2: its process or its link has ended",
                                 "rank 0: in barrier() as number 2, after number 1",
                                 "rank 1: in no collective, after barrier() as number 1"});
    }
    self.meet();
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
      self.meet();
      while (!over) own->run(barrier(1));
      return self.meet();
    }
    self.meet();
    auto late = barrier(2);
    late.limit = milliseconds(50);
    const auto error = error_of([&] { self.group->run(late); });
    over = true;
    EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
    expect_text(error.what(), {"rank 0: in no collective, after barrier() as number 1"});
    self.meet();
  });
}

// The root's small broadcasts leave at once, without anything under way beside them.
TEST(Whereabouts, CallsThatEndAtOnceAreFinished) {
  run({.size = 2}, [](Rank& self) {
    std::vector<float> values(3, 1);
    Simple broadcast(Operation::kBroadcast, Blocks::even(3, 2), bytes_of(std::as_const(values)),
                     bytes_of(values), sizeof(float));
    for (int i = 0; i < 3; ++i) self.group->run(broadcast.call);
    self.meet();
    if (self.rank() == 1) {
      auto late = barrier(2);
      late.limit = milliseconds(50);
      const auto error = error_of([&] { self.group->run(late); });
      expect_text(error.what(), {"rank 0: in no collective, after broadcast(", "as number 3"});
    }
    self.meet();
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
