#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "side/answers.hpp"
#include "side/ending.hpp"

namespace torch::comms::side {

// A question of a member of a group, to all of them: what did you call as collective `number`, and
// where are you?
struct Question {
  enum class Aim : uint64_t {
    kCompare,  // do all call the same?
    kReport,   // the asker may end its communicator, and says where all were
    kEnd,      // the asker ends it when all who can have heard so: see Note::ending
  };
  uint64_t number = 0;  // 0: only where they are
  Aim aim = Aim::kCompare;
  int32_t asker = -1;
  uint32_t serial = 0;  // of the asker's questions

  friend bool operator==(const Question&, const Question&) = default;
  // Of two that meet the one that goes on: the other asker hears of its outcome. Who is behind
  // knows nothing of what the others may disagree about, so the later number counts.
  bool beats(const Question& other) const noexcept {
    if (aim != other.aim) return aim > other.aim;
    if (number != other.number) return number > other.number;
    if (asker != other.asker) return asker < other.asker;
    return serial > other.serial;
  }
};

// The messages between two members that one of them has posted by the time when it closes the
// group.
struct Posted {
  uint64_t sends = 0;     // to the other member
  uint64_t receives = 0;  // from the other member; those from any rank only once matched
  uint64_t from_any = 0;  // 1: receives from any rank are still open
  friend bool operator==(const Posted&, const Posted&) = default;
};

// What neighbours of a group tell each other. Ranks are those of the group.
struct Note {
  enum class Kind : uint8_t {
    kLost = 1,  // rank `about` has failed
    kClosed,    // the sender has closed the group, in good order, after collective `number`
    kAsk,       // `question`
    kTell,      // the answers of the sender, and of all that it has asked
    kFound,     // what came of a question: see `mismatch`
    kCheck,     // the same as kSendFailure, before the collective begins
    kGo,        // all have called collective `number` alike
  };
  Kind kind = Kind::kLost;
  uint64_t group = 0;
  uint64_t number = 0;       // kClosed, kFound, kCheck, kSuccess
  int32_t about = -1;        // kFailed
  Question question = {};    // kRequest, kSendFailure, kFound
  uint32_t patience_ms = 0;  // kRequest: how long the sender waits for the answer
  bool mismatch = false;  // kFound: ranks disagree about `number`; else `why` says where all were
  std::string why = {};   // kFound
  std::vector<int32_t> culprits = {};  // kFound: the ranks at fault, kMostCulprits at most
  Answers answers = {};                // kSendFailure, kCheck
  Ending ending = {};                  // kRequest of an end; kMostCulprits at most
  std::optional<Posted> posted = {};   // kClosed: between the sender and the reader

  static constexpr size_t kMostCulprits = 256;
  static constexpr size_t kMostBytes = size_t{4} << 20;
  std::string serialize() const;
  // For a reader of groups of `size` ranks at most. Throws CommError(kMismatch).
  static Note parse(std::string_view text, int size);
};

}  // namespace torch::comms::side
