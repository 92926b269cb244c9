#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "base/os/secret.hpp"

// What the ranks of an exchange say to each other.
namespace torch::comms::bootstrap {

inline constexpr size_t kMaxBlobBytes = 2048;     // what a rank may tell the others
inline constexpr size_t kMaxContactBytes = 512;   // where it listens
inline constexpr size_t kMaxFailureBytes = 1024;  // why it fails

enum class ExchangeFrameKind : uint8_t {
  kRequest = 1,  // from whoever connects; no payload
  kResponse,     // back: see answer.hpp
  kFailure,      // either way: the sender has failed; payload FailureNotice
};

// The first bytes of everything. As it stands on the wire, little-endian.
struct ExchangeFrame {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  ExchangeFrameKind kind = ExchangeFrameKind::kRequest;
  uint8_t round = 0;
  int32_t from = -1, to = -1;  // ranks
  int32_t size = 0;            // ranks, as the sender counts them
  uint32_t bytes = 0;          // of payload
  uint64_t instance = 0;       // of the sender: two processes with one rank differ
  base::Secret job = {};

  static constexpr uint32_t kMagic = 0x58455454;  // "TTEX"
  static constexpr uint16_t kVersion = 1;
};
static_assert(sizeof(ExchangeFrame) == 48 &&
              std::has_unique_object_representations_v<ExchangeFrame>);

// Whose door a frame arrives at.
struct ExchangeEndpointId {
  int rank = 0;
  int size = 1;
  uint64_t instance = 0;
  base::Secret job = {};
};

// Why a connection was dropped; Reception counts each.
enum class DropReason : uint8_t {
  kNone,
  kUnknownProtocol,   // something else than our frames
  kVersionMismatch,   // ours, of another version
  kJobMismatch,       // without this job's secret
  kSizeMismatch,      // a rank that counts other ranks than this one does
  kRankMismatch,      // meant for another rank, or from one that has nothing to say here
  kTooLarge,          // a payload over its cap
  kHandshakeTimeout,  // said nothing whole in time
  kEvicted,           // gave way to newer ones
  kClosedEarly,       // closed before it said anything whole
};
inline constexpr int kDropReasons = 10;
// "not ours", "too slow": for counts in error texts.
TC_API std::string_view to_text(DropReason refusal) noexcept;

// kNone if the header may come in as a question, or as a reply of `source` in `round`. They look at
// nothing but what they are given, and every number of a header that passes is in its range.
TC_API DropReason request_drop_reason(const ExchangeFrame& frame,
                                      const ExchangeEndpointId& door) noexcept;
TC_API DropReason response_drop_reason(const ExchangeFrame& frame, const ExchangeEndpointId& door,
                                       int source, int round) noexcept;

// Why a rank fails, as told to others. `peer` is the one rank to blame, or -1.
struct FailureNotice {
  Errc code = Errc::kPeerFailed;
  int peer = -1;
  std::string reason;
};
// Cut to kMaxFailureBytes.
TC_API std::string to_bytes(const FailureNotice& notice);
// With the header before it.
TC_API std::string notice_bytes(ExchangeFrame head, const FailureNotice& notice);
// Nothing for bytes that no rank of `size` wrote.
TC_API std::optional<FailureNotice> parse_notice(std::string_view bytes, int size);

}  // namespace torch::comms::bootstrap
