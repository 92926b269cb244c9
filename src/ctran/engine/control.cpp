#include "ctran/engine/control.hpp"

#include "base/utf8.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::ctran {
namespace {

constexpr size_t kMostText = 3400;

}  // namespace

std::string Notice::serialize() const {
  transport::ByteWriter writer;
  writer.add(kind).add(code).add(base).add(about).add(sequence);
  if (kind == Kind::kAsks || kind == Kind::kDisagrees) writer.add(print);
  if (kind == Kind::kAsks) writer.add(sent).add(awaited);
  if (kind == Kind::kHere) writer.add(who).add(place);
  if (kind == Kind::kDeparts) writer.add(static_cast<uint8_t>(receives));
  if (kind == Kind::kFailed)
    writer.add(place).add(static_cast<uint8_t>(reported)).list(culprits, kMostCulprits);
  if (has_text()) writer.text(base::utf8_prefix(why, kMostText));
  return writer.release();
}

Notice Notice::parse(std::string_view text) {
  transport::ByteReader reader(text, "a notice");
  Notice notice;
  notice.kind = reader.number<Kind>();
  notice.code = reader.number<Errc>();
  notice.base = reader.number<uint32_t>();
  notice.about = reader.number<int32_t>();
  notice.sequence = reader.number<uint64_t>();
  reader.require(notice.kind >= Kind::kFailed && notice.kind <= Kind::kRests, "unknown kind");
  reader.require(notice.code <= Errc::kInternal, "unknown error");
  if (notice.kind == Kind::kAsks || notice.kind == Kind::kDisagrees)
    notice.print = reader.number<Fingerprint>();
  if (notice.kind == Kind::kAsks) {
    notice.sent = reader.number<int64_t>();
    notice.awaited = reader.number<int64_t>();
  }
  if (notice.kind == Kind::kHere) {
    notice.who = reader.number<int32_t>();
    notice.place = reader.number<RankProgress>();
  }
  if (notice.kind == Kind::kDeparts) notice.receives = reader.number<uint8_t>() != 0;
  if (notice.kind == Kind::kFailed) {
    notice.place = reader.number<RankProgress>();
    notice.reported = reader.number<uint8_t>() != 0;
    notice.culprits = reader.list<int32_t>();
  }
  if (notice.has_text()) notice.why = reader.text();
  reader.require(reader.is_at_end(), "it goes on after its end");
  return notice;
}

void Control::listen(int peer, transport::Transport& link) {
  auto& inbox = inboxes_[static_cast<size_t>(peer)];
  if (!inbox) inbox = std::make_unique<Inbox>();
  link.receive(inbox->request, peer, kStream, inbox->bytes);
}

void Control::send(int peer, transport::Transport& link, const Notice& notice) {
  auto& outgoing = outgoing_.emplace_back();
  outgoing.text = notice.serialize();
  link.send(outgoing.request, peer, kStream, std::as_bytes(std::span(outgoing.text)));
  tidy();
}

Control::Heard Control::hear(int peer, transport::Transport& link, Notice& notice) {
  auto& inbox = inboxes_[static_cast<size_t>(peer)];
  if (!inbox || inbox->failed || !inbox->request.is_done()) return Heard::kNothing;
  if (!inbox->request.is_ok()) {
    inbox->failed = true;
    return Heard::kFailed;
  }
  const auto* text = reinterpret_cast<const char*>(inbox->bytes.data());
  try {
    notice = Notice::parse({text, inbox->request.bytes()});
  } catch (const CommError&) {
    inbox->failed = true;
    return Heard::kFailed;
  }
  listen(peer, link);
  return Heard::kNotice;
}

void Control::tidy() {
  std::erase_if(outgoing_, [](const auto& outgoing) { return outgoing.request.is_done(); });
}

}  // namespace torch::comms::ctran
