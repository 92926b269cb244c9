#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/arrival_barrier.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {

// How long ranks wait for a text that another rank is just writing.
inline constexpr std::chrono::milliseconds kWriteGrace{2000};

// How an attempt ended. Stored as its kind's letter, the rank to blame, of kSuccess a slash and the
// identity, a space and the text.
struct AttemptResult {
  enum Kind : char { kSuccess = 'G', kTimeout = 'T', kMismatch = 'M', kPeerLeft = 'L' };
  Kind kind;
  int peer;               // the one rank to blame; -1: none, or several
  std::string text;       // of kSuccess: "4 ranks"
  uint64_t identity = 0;  // of kSuccess: Arrival's

  std::string serialize() const;
  // Throws CommError(kSystem) naming `address` for a text that no rank wrote.
  static AttemptResult parse(const std::string& stored, const std::string& address);
};

// "1 rank", "4 ranks".
std::string format_rank_count(int64_t ranks);

// One try of the ranks to meet under one name; see wait_for_all_ranks() for the rules. Its keys,
// below <root><number>/, with what they hold:
//   rank/<r>   how often rank r came
//   arrived    who came, and with which sizes (two sums in one counter)
//   alike      the same of their backends, by a number for each
//   claim      who writes the verdict: the first to add
//   verdict    how it ended
//   unfit      as a verdict, why a rank that has come cannot take part
//   word       of whoever has met here: what they begin with
//   heard      how many ranks know of a bad end; heard/<n> appears when n do
// Beside the attempts: <root>next, the first attempt that has not ended; <scope>/seen/<r>, where
// rank r was last, and with which backend.
class ArrivalAttempt {
 public:
  ArrivalAttempt(KeyValueStore& store, const ArrivalBarrierParams& self, const std::string& root,
                 int64_t number)
      : store_(store), self_(self), root_(root), number_(number) {}

  // Nothing where the attempt had ended before this rank came. After an error on this side the
  // attempt is ended for the others, too.
  std::optional<AttemptResult> run();

  // After a bad verdict. Rank 0's process often serves the store and may end with the error that
  // follows; that must not leave the others with a lost connection for a reason.
  void sync_before_raising() noexcept;

  // After a good one: everybody is past the attempt before, so its keys have no reader left.
  void remove_previous();

  // However it has ended: throws what this rank's `bring` has thrown, if it has, when the others
  // have heard of it.
  void rethrow_prepare_error();

  std::string key_prefix() const { return root_ + std::to_string(number_) + "/"; }

 private:
  struct ArrivalTally {
    int64_t ranks, total;
  };
  static ArrivalTally parse_tally(int64_t sum);

  std::optional<AttemptResult> register_arrival();
  void prepare();
  AttemptResult count_arrival();
  AttemptResult wait_for_result(bool reminds);
  void wait_then_report_missing();
  void report_missing_ranks();
  void publish_failure(const std::string& why) noexcept;

  AttemptResult publish_result(const std::function<AttemptResult()>& make);
  AttemptResult read_other_result();
  AttemptResult duplicate_rank_result();
  AttemptResult size_mismatch_result(const ArrivalTally& now) const;
  AttemptResult backend_mismatch_result();
  std::string backend_of(int rank);
  AttemptResult timeout_result();
  std::string last_seen(const std::vector<int>& absent);
  std::string other_world_hint();

  std::string key(const std::string& word) const { return key_prefix() + word; }
  std::string rank_key(int rank) const { return key("rank/" + std::to_string(rank)); }
  std::string seen_key(int rank) const { return self_.key_scope + "/seen/" + std::to_string(rank); }
  bool has_ended() { return store_.has({key("verdict")}); }
  AttemptResult read_result();
  std::vector<int> missing_ranks();

  KeyValueStore& store_;
  const ArrivalBarrierParams& self_;
  const std::string& root_;
  const int64_t number_;
  std::exception_ptr prepare_exception_;  // of `bring`
  std::string prepare_failed_;            // the same, for the others
};

}  // namespace torch::comms::bootstrap
