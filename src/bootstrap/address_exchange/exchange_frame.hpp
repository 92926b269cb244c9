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

// The frames that the ranks of an exchange send to each other.
namespace torch::comms::bootstrap {

inline constexpr size_t kMaxBlobBytes = 2048;     // the data of one rank
inline constexpr size_t kMaxContactBytes = 512;   // the addresses of one rank
inline constexpr size_t kMaxFailureBytes = 1024;  // the reason of a failure

enum class ExchangeFrameKind : uint8_t {
  kRequest = 1,  // from the rank that connects; no payload
  kResponse,     // the reply: see response.hpp
  kFailure,      // in both directions: the sender has failed; payload FailureNotice
};

// The header of every message, in its format on the wire, little-endian.
struct ExchangeFrame {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  ExchangeFrameKind kind = ExchangeFrameKind::kRequest;
  uint8_t round = 0;
  int32_t from = -1, to = -1;  // ranks
  int32_t size = 0;            // number of ranks, in the sender's view
  uint32_t bytes = 0;          // of payload
  uint64_t instance = 0;       // random per process: shows two processes with one rank
  base::Secret job = {};

  static constexpr uint32_t kMagic = 0x58455454;  // "TTEX"
  static constexpr uint16_t kVersion = 1;
};
static_assert(sizeof(ExchangeFrame) == 48 &&
              std::has_unique_object_representations_v<ExchangeFrame>);

// The identity of the rank that a frame arrives at.
struct ExchangeEndpointId {
  int rank = 0;
  int size = 1;
  uint64_t instance = 0;
  base::Secret job = {};
};

// Why a connection was dropped; PendingConnections counts each reason.
enum class DropReason : uint8_t {
  kNone,
  kUnknownProtocol,   // not our frames
  kVersionMismatch,   // another version of our frames
  kJobMismatch,       // without this job's secret
  kSizeMismatch,      // from a rank with another number of ranks
  kRankMismatch,      // for another rank, or from a rank that is not expected here
  kTooLarge,          // a payload over its cap
  kHandshakeTimeout,  // no whole header in time
  kEvicted,           // closed to make room for newer connections
  kClosedEarly,       // closed by the peer before a whole header came
};
inline constexpr int kDropReasons = 10;
// Returns a text such as "with an unknown protocol" or "too large", for counts in error texts.
TC_API std::string_view to_text(DropReason refusal) noexcept;

// Check a header as a request, or as a response of `source` in `round`. They are pure functions.
// All numbers of an accepted header are in range.
// Returns: kNone if the header is accepted.
TC_API DropReason request_drop_reason(const ExchangeFrame& frame,
                                      const ExchangeEndpointId& own_id) noexcept;
TC_API DropReason response_drop_reason(const ExchangeFrame& frame, const ExchangeEndpointId& own_id,
                                       int source, int round) noexcept;

// Why a rank fails, as it is sent to peers. `peer` is the only culprit, or -1.
struct FailureNotice {
  Errc code = Errc::kPeerFailed;
  int peer = -1;
  std::string reason;
};
// Serializes `notice`; the reason is cut so that it fits kMaxFailureBytes.
TC_API std::string to_bytes(const FailureNotice& notice);
// Serializes `notice` with a frame header in front.
TC_API std::string notice_bytes(ExchangeFrame head, const FailureNotice& notice);
// Parses a notice. Returns: nothing for bytes that are no valid notice of a rank below `size`.
TC_API std::optional<FailureNotice> parse_notice(std::string_view bytes, int size);

}  // namespace torch::comms::bootstrap
