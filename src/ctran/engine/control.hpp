#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/engine/fingerprint.hpp"
#include "side/rank_progress.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

using monitor::RankProgress;

// What ranks tell each other beside their operations, about a group.
struct Notice {
  enum class Kind : uint8_t {
    kFailed = 1,
    kAsks,
    kDisagrees,
    kDeparts,
    kWhere,
    kHere,
    kTagged,
    kRests
  };
  Kind kind = Kind::kFailed;
  Errc code = Errc::kInternal;  // kFailed: what the group's error is to be
  uint32_t base = 0;            // the group's streams
  // A rank of the family. kWhere, kHere: who wants to know. kRests: who does. kTagged: a tag, whose
  // messages from the sender come on stream `sequence`.
  int32_t about = -1;
  uint64_t sequence = 0;   // kZeroCopyRequest, kDisagrees: where; kDeparts: of the last collective
  Fingerprint print = {};  // kZeroCopyRequest, kDisagrees: what the sender called
  // kZeroCopyRequest, of an exchange whose counts each rank has of its own: elements that the
  // sender sends to, and awaits of, the one that it asks.
  int64_t sent = -1, awaited = -1;
  // kFailed. kDisagrees: what the sender met that no fingerprint shows, or "".
  std::string why = {};
  int32_t who = -1;         // kHere: the rank of the family that is there
  RankProgress place = {};  // kHere, kFailed: where that rank, or the sender, is
  bool reported = false;    // kFailed: `why` says where the ranks were
  bool receives = false;    // kDeparts: receives or collectives of the sender are still open
  std::vector<int32_t> culprits = {};  // kFailed: ranks of the family, kMaxCulprits at most

  bool has_text() const noexcept { return kind == Kind::kFailed || kind == Kind::kDisagrees; }
  static constexpr size_t kMostCulprits = 32;
  std::string serialize() const;
  // Throws CommError(kSizeMismatch).
  static Notice parse(std::string_view text);
};

// The stream of notices on every link of a family: one receive a peer is always there.
class Control {
 public:
  static constexpr uint32_t kStream = 0;

  explicit Control(int size) : inboxes_(static_cast<size_t>(size)) {}

  void listen(int peer, transport::Transport& link);
  void send(int peer, transport::Transport& link, const Notice& notice);

  enum class Heard : uint8_t { kNothing, kNotice, kFailed };
  // What came from a peer that is listened to; kFailed once.
  Heard hear(int peer, transport::Transport& link, Notice& notice);
  // Sent notices that have left give back their memory.
  void tidy();

 private:
  static constexpr size_t kMostBytes = 4096;
  struct Inbox {
    transport::Request request;
    std::array<std::byte, kMostBytes> bytes;
    bool failed = false;
  };
  struct Outgoing {
    transport::Request request;
    std::string text;
  };
  std::vector<std::unique_ptr<Inbox>> inboxes_;  // by rank
  std::list<Outgoing> outgoing_;
};

}  // namespace torch::comms::ctran
