#include "monitor/rank_progress.hpp"

#include <gtest/gtest.h>

#include "ctran/reduction/dtype.hpp"
#include "monitor/mismatch_report.hpp"

// "Where is every rank?", and "who calls something else?", as texts.
namespace torch::comms::monitor {
namespace {

using ctran::Dtype;
using std::chrono::milliseconds;

Fingerprint fingerprint(uint64_t sequence, std::string_view name = "all_reduce") {
  Fingerprint result;
  result.sequence = sequence;
  name.copy(result.name, sizeof result.name - 1);
  result.dtype = static_cast<uint8_t>(Dtype::kFloat32);
  result.element_bytes = 4;
  result.count = 1000;
  return result;
}

RankProgress at(uint64_t called, uint64_t finished) {
  return {.called = called,
          .finished = finished,
          .fingerprint = fingerprint(called > finished ? finished + 1 : finished)};
}

void expect_text(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(Whereabouts, RanksAreNamedAsRanges) {
  EXPECT_EQ(format_rank_list(std::vector{3}), "rank 3");
  EXPECT_EQ(format_rank_list(std::vector{0, 1}), "ranks 0, 1");
  EXPECT_EQ(format_rank_list(std::vector{0, 1, 2, 4, 8, 9}), "ranks 0-2, 4, 8, 9");
}

TEST(Whereabouts, SayWhatWasEnteredAndWhatWasFinished) {
  EXPECT_EQ(RankProgress{}.format(true), "before the first collective");
  EXPECT_EQ(at(7, 6).format(false),
            "in all_reduce(float32, 1000 elements) as number 7 (4000 bytes), after number 6");
  EXPECT_EQ(at(9, 6).format(false),
            "in all_reduce(float32, 1000 elements) as number 7 (4000 bytes), with 2 more called, "
            "after number 6");
  EXPECT_EQ(at(6, 6).format(false),
            "in no collective, after all_reduce(float32, 1000 elements) as number 6 (4000 bytes)");
  auto receiving = at(0, 0);
  receiving.p2p_started = 3;
  receiving.p2p_finished = 2;
  receiving.last_p2p = {.name = "recv", .bytes = 12, .messages = 1, .peer = 5};
  EXPECT_EQ(receiving.format(false),
            "before the first collective; in recv of 12 bytes from rank 5");
  for (const auto& [call, text] : std::vector<std::pair<NonCollectiveCall, std::string>>{
           {{.name = "put", .bytes = 12, .messages = 1, .peer = 2, .sends = 1},
            "put of 12 bytes to rank 2"},
           {{.name = "signal", .peer = 2, .sends = 1}, "signal to rank 2"},
           {{.name = "wait_signal", .peer = 2}, "wait_signal from rank 2"},
           {{.name = "wait_signal"}, "wait_signal"}})
    EXPECT_EQ(call.format(), text);
  receiving.p2p_finished = 3;
  EXPECT_EQ(receiving.format(false), "before the first collective");
  EXPECT_EQ(receiving.format(true),
            "before the first collective; after recv of 12 bytes from rank 5");
}

TEST(Whereabouts, ThoseWhoAreBehindOrSilentAreTheCulprits) {
  ProgressReport report{.size = 5, .number = 7, .waited = milliseconds(500)};
  for (const int rank : {0, 1, 2, 4}) report.progress[rank] = at(7, 6);
  report.progress[3] = at(5, 5);
  EXPECT_EQ(report.culprits(), std::vector{3});
  expect_text(report.format(), {"rank 3 is 2 collectives behind, since number 6",
                                "where the ranks were: rank 3: in no collective, after ",
                                "; ranks 0-2, 4: in all_reduce("});
  report.progress.erase(4);
  EXPECT_EQ(report.culprits(), (std::vector{3, 4}));
  expect_text(report.format(), {"rank 4 did not answer within 500 ms"});
  report.progress[3] = at(7, 6);
  EXPECT_EQ(report.culprits(), std::vector{4});
  report.unreachable[4] = "it has closed the communicator";
  EXPECT_TRUE(report.culprits().empty());  // the others are told why it has gone
  report.closed = {4};
  EXPECT_EQ(report.culprits(), std::vector{4});
  report.progress[3] = at(5, 5);
  EXPECT_EQ(report.culprits(), (std::vector{3, 4}));
}

TEST(Whereabouts, ThousandsOfRanksStayReadable) {
  ProgressReport report{.size = 10'000, .number = 9, .waited = milliseconds(500)};
  for (int rank = 0; rank < report.size; ++rank) {
    if (rank % 1000 == 17) continue;
    report.progress[rank] = at(rank % 500 == 3 ? 4 + static_cast<uint64_t>(rank / 500) % 5 : 9, 8);
    if (rank % 100 == 50) {
      report.progress[rank].p2p_started = 1;
      report.progress[rank].last_p2p = {
          .name = "recv", .bytes = 4, .messages = 1, .peer = rank - 1};
    }
  }
  const auto text = report.format();
  EXPECT_LT(text.size(), 3000u) << text;
  expect_text(text, {"ranks 17, 1017, 2017", "did not answer within 500 ms", "behind, since number",
                     "other progress"});
}

TEST(Disagreement, TheFewAreNamedFirst) {
  std::unordered_map<int, Fingerprint> fingerprints;
  for (int rank = 0; rank < 6; ++rank) fingerprints[rank] = fingerprint(4);
  fingerprints[3] = fingerprint(4, "reduce");
  fingerprints[3].root = 2;
  auto report = make_mismatch_report(fingerprints, {});
  EXPECT_EQ(report.reason,
            "ranks disagree: rank 3 calls reduce(float32, 1000 elements, root 2) as number 4; "
            "ranks 0-2, 4, 5 call all_reduce(float32, 1000 elements) as number 4");
  EXPECT_EQ(report.ranks, std::vector{3});
  fingerprints[5] = fingerprints[3];
  report = make_mismatch_report(fingerprints, std::vector{6, 7});
  EXPECT_EQ(report.ranks, (std::vector{3, 5}));
  expect_text(report.reason, {"ranks 3, 5 call reduce(", "; ranks 6, 7 did not answer"});
}

TEST(Disagreement, TheMinorityMayBeSeveral) {
  std::unordered_map<int, Fingerprint> fingerprints;
  for (int rank = 0; rank < 5; ++rank) fingerprints[rank] = fingerprint(4);
  fingerprints[3] = fingerprint(4, "reduce");
  fingerprints[1] = fingerprint(4, "broadcast");
  EXPECT_EQ(make_mismatch_report(fingerprints, {}).ranks,
            (std::vector{1, 3}));  // each calls something else
  fingerprints.erase(4);
  EXPECT_TRUE(make_mismatch_report(fingerprints, {}).ranks.empty());  // who is wrong nobody knows
  fingerprints.erase(1);
  EXPECT_EQ(make_mismatch_report(fingerprints, {}).ranks, std::vector{3});
}

TEST(Disagreement, WhoComparesFirstIsSaidWhereItTellsRanksApart) {
  std::unordered_map<int, Fingerprint> fingerprints;
  for (int rank = 0; rank < 3; ++rank)
    fingerprints[rank] = fingerprint(4), fingerprints[rank].is_presence_only = 1;
  fingerprints[1].root = 2;
  EXPECT_EQ(make_mismatch_report(fingerprints, {}).reason.find("with check_calls"),
            std::string::npos);
  fingerprints[1] = fingerprint(4);
  EXPECT_EQ(
      make_mismatch_report(fingerprints, {}).reason,
      "ranks disagree: rank 1 calls all_reduce(float32, 1000 elements) as number 4; ranks 0, 2 "
      "call all_reduce(float32, 1000 elements) as number 4, with check_calls; check_calls is not "
      "the same on all ranks");
}

TEST(Disagreement, WhereAllCalledTheSameItIsWhatSomeRankMet) {
  const std::unordered_map<int, Fingerprint> fingerprints{{0, fingerprint(4)}, {1, fingerprint(4)}};
  expect_text(make_mismatch_report(fingerprints, {}).reason,
              {"ranks 0, 1 call ", "; a message of an earlier"});
  EXPECT_TRUE(
      make_mismatch_report(fingerprints, {}, "rank 1 met it").reason.ends_with("; rank 1 met it"));
}

TEST(Disagreement, ABarrierHasNoData) {
  auto barrier = fingerprint(1, "barrier");
  barrier.dtype = kNoData;
  EXPECT_EQ(barrier.format(), "barrier() as number 1");
}

}  // namespace
}  // namespace torch::comms::monitor
