#include "monitor/monitor_message.hpp"

#include "base/text/utf8.hpp"

namespace torch::comms::monitor {
namespace {

constexpr size_t kMostText = 4000;

std::vector<int32_t> read_culprits(transport::ByteReader& reader, int size) {
  auto culprits = reader.list<int32_t>();
  for (const int rank : culprits)
    reader.require(rank >= 0 && rank < size, "a culprit rank is out of range");
  return culprits;
}

}  // namespace

std::string MonitorMessage::serialize() const {
  transport::ByteWriter writer;
  writer.add(kind).add(group).add(number).add(failed_rank).add(query).add(reply_timeout_ms);
  if (kind == Kind::kResult)
    writer.add(static_cast<uint8_t>(is_mismatch))
        .text(base::utf8_prefix(reason, kMostText))
        .list(culprits, kMaxCulprits);
  if (kind == Kind::kReply || kind == Kind::kCheck) statuses.write(writer);
  if (kind == Kind::kQuery && query.purpose == MonitorQuery::Purpose::kAnnounceAbort)
    writer.add(abort_reason.code)
        .text(base::utf8_prefix(abort_reason.reason, kMostText))
        .list(abort_reason.culprits, kMaxCulprits);
  if (kind == Kind::kClosed) {
    writer.add(static_cast<uint8_t>(posted.has_value()));
    if (posted) writer.add(*posted);
  }
  return writer.release();
}

MonitorMessage MonitorMessage::parse(std::string_view text, int size) {
  transport::ByteReader reader(text, "invalid message of the side channel");
  MonitorMessage note;
  note.kind = reader.number<Kind>();
  note.group = reader.number<uint64_t>();
  note.number = reader.number<uint64_t>();
  note.failed_rank = reader.number<int32_t>();
  note.query = reader.number<MonitorQuery>();
  note.reply_timeout_ms = reader.number<uint32_t>();
  reader.require(note.kind >= Kind::kFailed && note.kind <= Kind::kProceed, "unknown kind");
  reader.require(note.failed_rank >= -1 && note.failed_rank < size,
                 "a failed rank is out of range");
  reader.require(note.query.origin >= -1 && note.query.origin < size,
                 "the origin of a query is out of range");
  reader.require(note.query.purpose <= MonitorQuery::Purpose::kAnnounceAbort,
                 "unknown purpose of a query");
  if (note.kind == Kind::kResult) {
    note.is_mismatch = reader.number<uint8_t>() != 0;
    note.reason = reader.text();
    note.culprits = read_culprits(reader, size);
  }
  if (note.kind == Kind::kReply || note.kind == Kind::kCheck)
    note.statuses = RankStatusSet::read(reader, size);
  if (note.kind == MonitorMessage::Kind::kQuery &&
      note.query.purpose == MonitorQuery::Purpose::kAnnounceAbort) {
    note.abort_reason.code = reader.number<Errc>();
    reader.require(note.abort_reason.code <= Errc::kInternal, "unknown code of an abort");
    note.abort_reason.reason = reader.text();
    note.abort_reason.culprits = read_culprits(reader, size);
  }
  if (note.kind == Kind::kClosed && reader.number<uint8_t>() != 0)
    note.posted = reader.number<PostedCounts>();
  reader.require(reader.is_at_end(), "unexpected bytes at the end");
  return note;
}

}  // namespace torch::comms::monitor
