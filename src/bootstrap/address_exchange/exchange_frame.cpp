#include "bootstrap/address_exchange/exchange_frame.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text/utf8.hpp"
#include "bootstrap/address_exchange/bruck_rounds.hpp"
#include "bootstrap/address_exchange/response.hpp"

namespace torch::comms::bootstrap {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kNoticeHead = sizeof(uint8_t) + sizeof(int32_t);

DropReason why_not_ours(const ExchangeFrame& frame, const ExchangeEndpointId& own_id) noexcept {
  if (frame.magic != ExchangeFrame::kMagic) return DropReason::kUnknownProtocol;
  if (frame.version != ExchangeFrame::kVersion) return DropReason::kVersionMismatch;
  if (!base::constant_time_equal(frame.job, own_id.job)) return DropReason::kJobMismatch;
  if (frame.size != own_id.size) return DropReason::kSizeMismatch;
  if (frame.to != own_id.rank || frame.from < 0 || frame.from >= own_id.size)
    return DropReason::kRankMismatch;
  return DropReason::kNone;
}

}  // namespace

std::string_view to_text(DropReason refusal) noexcept {
  static constexpr std::string_view kTexts[kDropReasons] = {"accepted",
                                                            "with an unknown protocol",
                                                            "of another version",
                                                            "of another job",
                                                            "of a job with another number of ranks",
                                                            "of an unexpected rank",
                                                            "too large",
                                                            "without a handshake in time",
                                                            "too many at once",
                                                            "closed before the handshake"};
  return kTexts[static_cast<size_t>(refusal)];
}

DropReason request_drop_reason(const ExchangeFrame& frame,
                               const ExchangeEndpointId& own_id) noexcept {
  if (const auto why = why_not_ours(frame, own_id); why != DropReason::kNone) return why;
  const BruckRounds rounds{own_id.rank, own_id.size};
  if (frame.kind != ExchangeFrameKind::kRequest) return DropReason::kUnknownProtocol;
  if (frame.round >= rounds.count() || frame.from != rounds.client(frame.round))
    return DropReason::kRankMismatch;
  return frame.bytes == 0 ? DropReason::kNone : DropReason::kTooLarge;
}

DropReason response_drop_reason(const ExchangeFrame& frame, const ExchangeEndpointId& own_id,
                                int source, int round) noexcept {
  if (const auto why = why_not_ours(frame, own_id); why != DropReason::kNone) return why;
  if (frame.from != source || frame.round != round) return DropReason::kRankMismatch;
  const BruckRounds rounds{own_id.rank, own_id.size};
  switch (frame.kind) {
    case ExchangeFrameKind::kResponse:
      if (frame.bytes < min_response_bytes(rounds.blobs(round)))
        return DropReason::kUnknownProtocol;
      return frame.bytes <= max_response_bytes(rounds.blobs(round)) ? DropReason::kNone
                                                                    : DropReason::kTooLarge;
    case ExchangeFrameKind::kFailure:
      if (frame.bytes < kNoticeHead) return DropReason::kUnknownProtocol;
      return frame.bytes <= kMaxFailureBytes ? DropReason::kNone : DropReason::kTooLarge;
    default:
      return DropReason::kUnknownProtocol;
  }
}

std::string to_bytes(const FailureNotice& notice) {
  std::string bytes(kNoticeHead, '\0');
  bytes[0] = static_cast<char>(notice.code);
  const int32_t peer = notice.peer;
  std::memcpy(bytes.data() + 1, &peer, sizeof peer);
  return bytes.append(base::utf8_prefix(notice.reason, kMaxFailureBytes - kNoticeHead));
}

std::string notice_bytes(ExchangeFrame head, const FailureNotice& notice) {
  const auto payload = to_bytes(notice);
  head.kind = ExchangeFrameKind::kFailure;
  head.bytes = static_cast<uint32_t>(payload.size());
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + payload;
}

std::optional<FailureNotice> parse_notice(std::string_view bytes, int size) {
  if (bytes.size() < kNoticeHead || bytes.size() > kMaxFailureBytes) return std::nullopt;
  FailureNotice notice;
  int32_t peer = -1;
  std::memcpy(&peer, bytes.data() + 1, sizeof peer);
  const auto code = static_cast<uint8_t>(bytes[0]);
  if (code > static_cast<uint8_t>(Errc::kInternal) || peer < -1 || peer >= size)
    return std::nullopt;
  notice.code = static_cast<Errc>(code);
  notice.peer = peer;
  notice.reason = bytes.substr(kNoticeHead);
  // The text is printed later, so it must not contain control characters for a terminal.
  std::ranges::replace_if(
      notice.reason, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return notice;
}

}  // namespace torch::comms::bootstrap
