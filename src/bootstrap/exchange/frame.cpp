#include "bootstrap/exchange/frame.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/utf8.hpp"
#include "bootstrap/exchange/answer.hpp"
#include "bootstrap/exchange/rounds.hpp"

namespace torch::comms::bootstrap {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kNoticeHead = sizeof(uint8_t) + sizeof(int32_t);

Refusal why_not_ours(const Frame& frame, const Door& door) noexcept {
  if (frame.magic != Frame::kMagic) return Refusal::kNotOurs;
  if (frame.version != Frame::kVersion) return Refusal::kOtherVersion;
  if (!base::constant_time_equal(frame.job, door.job)) return Refusal::kOtherJob;
  if (frame.size != door.size) return Refusal::kOtherSize;
  if (frame.to != door.rank || frame.from < 0 || frame.from >= door.size)
    return Refusal::kOtherRank;
  return Refusal::kNone;
}

}  // namespace

std::string_view to_text(Refusal refusal) noexcept {
  static constexpr std::string_view kTexts[kRefusals] = {"welcome",
                                                         "not ours",
                                                         "of another version",
                                                         "of another job",
                                                         "of a world of another size",
                                                         "of a wrong rank",
                                                         "too large",
                                                         "too slow",
                                                         "too many at once",
                                                         "closed unheard"};
  return kTexts[static_cast<size_t>(refusal)];
}

Refusal why_not_ask(const Frame& frame, const Door& door) noexcept {
  if (const auto why = why_not_ours(frame, door); why != Refusal::kNone) return why;
  const Rounds rounds{door.rank, door.size};
  if (frame.kind != FrameKind::kAsk) return Refusal::kNotOurs;
  if (frame.round >= rounds.number() || frame.from != rounds.client(frame.round))
    return Refusal::kOtherRank;
  return frame.bytes == 0 ? Refusal::kNone : Refusal::kTooLarge;
}

Refusal why_not_reply(const Frame& frame, const Door& door, int source, int round) noexcept {
  if (const auto why = why_not_ours(frame, door); why != Refusal::kNone) return why;
  if (frame.from != source || frame.round != round) return Refusal::kOtherRank;
  const Rounds rounds{door.rank, door.size};
  switch (frame.kind) {
    case FrameKind::kAnswer:
      if (frame.bytes < least_answer_bytes(rounds.blobs(round))) return Refusal::kNotOurs;
      return frame.bytes <= most_answer_bytes(rounds.blobs(round)) ? Refusal::kNone
                                                                   : Refusal::kTooLarge;
    case FrameKind::kNotice:
      if (frame.bytes < kNoticeHead) return Refusal::kNotOurs;
      return frame.bytes <= kMaxNoticeBytes ? Refusal::kNone : Refusal::kTooLarge;
    default:
      return Refusal::kNotOurs;
  }
}

std::string to_bytes(const Notice& notice) {
  std::string bytes(kNoticeHead, '\0');
  bytes[0] = static_cast<char>(notice.code);
  const int32_t peer = notice.peer;
  std::memcpy(bytes.data() + 1, &peer, sizeof peer);
  return bytes.append(base::utf8_prefix(notice.why, kMaxNoticeBytes - kNoticeHead));
}

std::string notice_bytes(Frame head, const Notice& notice) {
  const auto payload = to_bytes(notice);
  head.kind = FrameKind::kNotice;
  head.bytes = static_cast<uint32_t>(payload.size());
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + payload;
}

std::optional<Notice> parse_notice(std::string_view bytes, int size) {
  if (bytes.size() < kNoticeHead || bytes.size() > kMaxNoticeBytes) return std::nullopt;
  Notice notice;
  int32_t peer = -1;
  std::memcpy(&peer, bytes.data() + 1, sizeof peer);
  const auto code = static_cast<uint8_t>(bytes[0]);
  if (code > static_cast<uint8_t>(Errc::kInternal) || peer < -1 || peer >= size)
    return std::nullopt;
  notice.code = static_cast<Errc>(code);
  notice.peer = peer;
  notice.why = bytes.substr(kNoticeHead);
  // What is printed later must not steer a terminal.
  std::ranges::replace_if(
      notice.why, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return notice;
}

}  // namespace torch::comms::bootstrap
