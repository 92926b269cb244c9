#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "base/secret.hpp"

// What the ranks of an exchange say to each other.
namespace torch::comms::bootstrap {

inline constexpr size_t kMaxBlobBytes = 2048;    // what a rank may tell the others
inline constexpr size_t kMaxContactBytes = 512;  // where it listens
inline constexpr size_t kMaxNoticeBytes = 1024;  // why it fails

enum class FrameKind : uint8_t {
  kAsk = 1,  // from whoever connects; no payload
  kAnswer,   // back: see answer.hpp
  kNotice,   // either way: the sender has failed; payload Notice
};

// The first bytes of everything. As it stands on the wire, little-endian.
struct Frame {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  FrameKind kind = FrameKind::kAsk;
  uint8_t round = 0;
  int32_t from = -1, to = -1;  // ranks
  int32_t size = 0;            // ranks, as the sender counts them
  uint32_t bytes = 0;          // of payload
  uint64_t instance = 0;       // of the sender: two processes with one rank differ
  base::Secret job = {};

  static constexpr uint32_t kMagic = 0x58455454;  // "TTEX"
  static constexpr uint16_t kVersion = 1;
};
static_assert(sizeof(Frame) == 48 && std::has_unique_object_representations_v<Frame>);

// Whose door a frame arrives at.
struct Door {
  int rank = 0;
  int size = 1;
  uint64_t instance = 0;
  base::Secret job = {};
};

// Why a connection was dropped; Reception counts each.
enum class Refusal : uint8_t {
  kNone,
  kNotOurs,       // something else than our frames
  kOtherVersion,  // ours, of another version
  kOtherJob,      // without this job's secret
  kOtherSize,     // a rank that counts other ranks than this one does
  kOtherRank,     // meant for another rank, or from one that has nothing to say here
  kTooLarge,      // a payload over its cap
  kTooSlow,       // said nothing whole in time
  kCrowded,       // gave way to newer ones
  kLeft,          // closed before it said anything whole
};
inline constexpr int kRefusals = 10;
// "not ours", "too slow": for counts in error texts.
TC_API std::string_view to_text(Refusal refusal) noexcept;

// kNone if the header may come in as a question, or as a reply of `source` in `round`. They look at
// nothing but what they are given, and every number of a header that passes is in its range.
TC_API Refusal why_not_ask(const Frame& frame, const Door& door) noexcept;
TC_API Refusal why_not_reply(const Frame& frame, const Door& door, int source, int round) noexcept;

// Why a rank fails, as told to others. `peer` is the one rank to blame, or -1.
struct Notice {
  Errc code = Errc::kPeerFailed;
  int peer = -1;
  std::string why;
};
// Cut to kMaxNoticeBytes.
TC_API std::string to_bytes(const Notice& notice);
// With the header before it.
TC_API std::string notice_bytes(Frame head, const Notice& notice);
// Nothing for bytes that no rank of `size` wrote.
TC_API std::optional<Notice> parse_notice(std::string_view bytes, int size);

}  // namespace torch::comms::bootstrap
