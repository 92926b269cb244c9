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

// How long a rank waits for a value that another rank is about to write.
inline constexpr std::chrono::milliseconds kWriteGrace{2000};

// How an attempt ended. Stored as the letter of its kind, the culprit rank, for kSuccess a slash
// and the identity, a space, and the text.
struct AttemptResult {
  enum Kind : char { kSuccess = 'G', kTimeout = 'T', kMismatch = 'M', kPeerLeft = 'L' };
  Kind kind;
  int peer;               // the only culprit; -1: none or several
  std::string text;       // for kSuccess: "4 ranks"
  uint64_t identity = 0;  // for kSuccess: ArrivalBarrierResult::identity

  std::string serialize() const;
  // Throws: CommError(kSystem) that names `address` if `stored` was not written by serialize().
  static AttemptResult parse(const std::string& stored, const std::string& address);
};

// "1 rank", "4 ranks".
std::string format_rank_count(int64_t ranks);

// One attempt of the ranks to arrive under one name; see wait_for_all_ranks() for the rules. Its
// keys below <root><number>/ and their values:
//   rank/<r>   how often rank r arrived
//   arrived    the number of arrived ranks and the sum of their sizes, in one counter
//   alike      the number of ranks and the sum of their backends' hashes, in one counter
//   claim      counter; the first rank to add writes the verdict
//   verdict    how the attempt ended
//   unfit      in verdict format: why an arrived rank cannot take part
//   word       used by the communicator that the ranks create next
//   heard      how many ranks have read a failed verdict; heard/<n> appears when n ranks have
// Keys outside of attempts: <root>next is the first attempt that has not ended. <scope>/seen/<r> is
// the communicator that rank r created last, with its backend.
class ArrivalAttempt {
 public:
  ArrivalAttempt(KeyValueStore& store, const ArrivalBarrierParams& self, const std::string& root,
                 int64_t number)
      : store_(store), self_(self), root_(root), number_(number) {}

  // Takes part in the attempt. An error on this rank also ends the attempt for the peers.
  // Returns: nothing if the attempt had ended before this rank arrived.
  std::optional<AttemptResult> run();

  // Call it after a failed result. Rank 0's process often serves the store and may exit with the
  // error, so rank 0 waits here until the peers have read the result. Otherwise the peers would
  // report a lost connection.
  void sync_before_raising() noexcept;

  // Call it after success: all ranks have left the previous attempt, so its keys can be removed.
  void remove_previous();

  // Call it after any result. Throws: the exception of this rank's prepare(), if there was one,
  // after the peers have read it.
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
  AttemptResult wait_for_result(bool reports_missing);
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

  std::string key(const std::string& name) const { return key_prefix() + name; }
  std::string rank_key(int rank) const { return key("rank/" + std::to_string(rank)); }
  std::string seen_key(int rank) const { return self_.key_scope + "/seen/" + std::to_string(rank); }
  bool has_ended() { return store_.has({key("verdict")}); }
  AttemptResult read_result();
  std::vector<int> missing_ranks();

  KeyValueStore& store_;
  const ArrivalBarrierParams& self_;
  const std::string& root_;
  const int64_t number_;
  std::exception_ptr prepare_exception_;  // of self_.prepare
  std::string prepare_failed_;            // its text for the peers
};

}  // namespace torch::comms::bootstrap
