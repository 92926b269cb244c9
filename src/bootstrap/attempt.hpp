#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/checkin.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {

// How long ranks wait for a text that another rank is just writing.
inline constexpr std::chrono::milliseconds kGrace{2000};

// How an attempt ended. Stored as its kind's letter, the rank to blame, of kGo a slash and the
// identity, a space and the text.
struct Verdict {
  enum Kind : char { kGo = 'G', kTimeout = 'T', kMismatch = 'M', kLeft = 'L' };
  Kind kind;
  int peer;               // the one rank to blame; -1: none, or several
  std::string text;       // of kGo: "4 ranks"
  uint64_t identity = 0;  // of kGo: Arrival's

  std::string stored() const;
  // Throws CommError(kSystem) naming `address` for a text that no rank wrote.
  static Verdict parse(const std::string& stored, const std::string& address);
};

// "1 rank", "4 ranks".
std::string count_ranks(int64_t ranks);

// One try of the ranks to meet under one name; see check_in() for the rules. Its keys, below
// <root><number>/, with what they hold:
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
class Attempt {
 public:
  Attempt(KeyValue& store, const CheckIn& self, const std::string& root, int64_t number)
      : store_(store), self_(self), root_(root), number_(number) {}

  // Nothing where the attempt had ended before this rank came. After an error on this side the
  // attempt is ended for the others, too.
  std::optional<Verdict> take_part();

  // After a bad verdict. Rank 0's process often serves the store and may end with the error that
  // follows; that must not leave the others with a lost connection for a reason.
  void part() noexcept;

  // After a good one: everybody is past the attempt before, so its keys have no reader left.
  void remove_previous();

  // However it has ended: throws what this rank's `bring` has thrown, if it has, when the others
  // have heard of it.
  void raise_failure();

  std::string keys() const { return root_ + std::to_string(number_) + "/"; }

 private:
  struct Tally {
    int64_t ranks, total;
  };
  static Tally tally(int64_t sum);

  std::optional<Verdict> enter();
  void bring();
  Verdict arrive();
  Verdict await(bool reminds);
  void remind();
  void say_who_is_missing();
  void leave(const std::string& why) noexcept;

  Verdict decide(const std::function<Verdict()>& make);
  Verdict verdict_of_another();
  Verdict twice();
  Verdict other_size(const Tally& now) const;
  Verdict other_backend();
  std::string backend_of(int rank);
  Verdict late();
  std::string last_seen(const std::vector<int>& absent);
  std::string other_world();

  std::string key(const std::string& word) const { return keys() + word; }
  std::string rank_key(int rank) const { return key("rank/" + std::to_string(rank)); }
  std::string seen_key(int rank) const { return self_.scope + "/seen/" + std::to_string(rank); }
  bool has_ended() { return store_.has({key("verdict")}); }
  Verdict read_verdict();
  std::vector<int> missing();

  KeyValue& store_;
  const CheckIn& self_;
  const std::string& root_;
  const int64_t number_;
  std::exception_ptr failure_;  // of `bring`
  std::string unfit_;           // the same, for the others
};

}  // namespace torch::comms::bootstrap
