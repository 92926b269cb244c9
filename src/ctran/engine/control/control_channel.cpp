#include "ctran/engine/control/control_channel.hpp"

#include <utility>

#include "base/text/utf8.hpp"
#include "monitor/monitor_message.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::ctran {
namespace {

constexpr size_t kMostText = 3400;

}  // namespace

std::string ControlMessage::serialize() const {
  transport::ByteWriter writer;
  writer.add(kind).add(base).add(subject).add(sequence);
  if (kind == Kind::kCountsQuery) writer.add(sent).add(expected);
  if (kind == Kind::kLeaving) writer.add(static_cast<uint8_t>(has_open_receives));
  if (kind == Kind::kFailed)
    writer.add(failure.code)
        .add(static_cast<uint8_t>(has_progress_report))
        .list(failure.culprits, kMostCulprits)
        .text(base::utf8_prefix(failure.reason, kMostText));
  return kind == Kind::kMonitor ? writer.release() + monitor_message : writer.release();
}

ControlMessage ControlMessage::parse(std::string_view text) {
  transport::ByteReader reader(text, "control message");
  ControlMessage notice;
  notice.kind = reader.number<Kind>();
  notice.base = reader.number<uint32_t>();
  notice.subject = reader.number<int32_t>();
  notice.sequence = reader.number<uint64_t>();
  reader.require(notice.kind >= Kind::kMonitor && notice.kind <= Kind::kQuiesced, "unknown kind");
  if (notice.kind == Kind::kCountsQuery) {
    notice.sent = reader.number<int64_t>();
    notice.expected = reader.number<int64_t>();
  }
  if (notice.kind == Kind::kLeaving) notice.has_open_receives = reader.number<uint8_t>() != 0;
  if (notice.kind == Kind::kFailed) {
    notice.failure.code = reader.number<Errc>();
    reader.require(notice.failure.code <= Errc::kInternal, "unknown error code");
    notice.has_progress_report = reader.number<uint8_t>() != 0;
    notice.failure.culprits = reader.list<int32_t>();
    notice.failure.reason = reader.text();
  }
  if (notice.kind == Kind::kMonitor) notice.monitor_message = reader.rest();
  reader.require(reader.is_at_end(), "unexpected bytes at the end");
  return notice;
}

void ControlChannel::post_receive(int peer, transport::Transport& link) {
  auto& inbox = inboxes_[static_cast<size_t>(peer)];
  if (!inbox) inbox = std::make_unique<ControlInbox>();
  link.receive(inbox->request, peer, kStream, std::as_writable_bytes(std::span(inbox->bytes)));
}

void ControlChannel::send(int peer, transport::Transport& link, const ControlMessage& notice) {
  constexpr size_t kMostPart = kMostBytes - 1;
  const auto text = notice.serialize();
  for (size_t at = 0; at < text.size(); at += kMostPart) {
    auto& outgoing = outgoing_.emplace_back();
    outgoing.text = (at + kMostPart < text.size() ? '\1' : '\0') + text.substr(at, kMostPart);
    link.send(outgoing.request, peer, kStream, std::as_bytes(std::span(outgoing.text)));
  }
  release_sent();
}

ControlChannel::ControlPollResult ControlChannel::poll(int peer, transport::Transport& link,
                                                       ControlMessage& notice) {
  auto& inbox = inboxes_[static_cast<size_t>(peer)];
  while (inbox && !inbox->has_failed && inbox->request.is_done()) {
    const size_t bytes = inbox->request.is_ok() ? inbox->request.bytes() : 0;
    inbox->has_failed = bytes == 0 || inbox->text.size() > monitor::MonitorMessage::kMaxBytes;
    if (inbox->has_failed) return ControlPollResult::kFailed;
    inbox->text.append(inbox->bytes.data() + 1, bytes - 1);
    const bool is_last = inbox->bytes[0] == 0;
    try {
      if (is_last) notice = ControlMessage::parse(std::exchange(inbox->text, {}));
    } catch (const CommError&) {
      inbox->has_failed = true;
      return ControlPollResult::kFailed;
    }
    post_receive(peer, link);
    if (is_last) return ControlPollResult::kMessage;
  }
  return ControlPollResult::kNothing;
}

void ControlChannel::release_sent() {
  std::erase_if(outgoing_, [](const auto& outgoing) { return outgoing.request.is_done(); });
}

}  // namespace torch::comms::ctran
