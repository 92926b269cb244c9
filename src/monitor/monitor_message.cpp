#include "monitor/monitor_message.hpp"

#include "base/text/utf8.hpp"

namespace torch::comms::monitor {
namespace {

constexpr size_t kMaxText = 4000;

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
  if (has_reason()) writer.text(base::utf8_prefix(reason, kMaxText));
  if (kind == Kind::kResult)
    writer.add(static_cast<uint8_t>(is_mismatch)).list(culprits, kMaxCulprits);
  if (kind == Kind::kReply || kind == Kind::kCheck) statuses.write(writer);
  if (kind == Kind::kQuery && query.purpose == MonitorQuery::Purpose::kAnnounceAbort)
    writer.add(abort_reason.code)
        .text(base::utf8_prefix(abort_reason.reason, kMaxText))
        .list(abort_reason.culprits, kMaxCulprits);
  if (kind == Kind::kClosed) {
    writer.add(static_cast<uint8_t>(posted.has_value()));
    if (posted) writer.add(*posted);
  }
  return writer.release();
}

MonitorMessage MonitorMessage::parse(std::string_view text, int size) {
  transport::ByteReader reader(text, "invalid message of the side channel");
  MonitorMessage message;
  message.kind = reader.number<Kind>();
  message.group = reader.number<uint64_t>();
  message.number = reader.number<uint64_t>();
  message.failed_rank = reader.number<int32_t>();
  message.query = reader.number<MonitorQuery>();
  message.reply_timeout_ms = reader.number<uint32_t>();
  reader.require(message.kind >= Kind::kFailed && message.kind <= Kind::kProceed, "unknown kind");
  reader.require(message.failed_rank >= -1 && message.failed_rank < size,
                 "a failed rank is out of range");
  reader.require(message.query.origin >= -1 && message.query.origin < size,
                 "the origin of a query is out of range");
  reader.require(message.query.purpose <= MonitorQuery::Purpose::kAnnounceAbort,
                 "unknown purpose of a query");
  if (message.has_reason()) message.reason = reader.text();
  if (message.kind == Kind::kResult) {
    message.is_mismatch = reader.number<uint8_t>() != 0;
    message.culprits = read_culprits(reader, size);
  }
  if (message.kind == Kind::kReply || message.kind == Kind::kCheck)
    message.statuses = RankStatusSet::read(reader, size);
  if (message.kind == MonitorMessage::Kind::kQuery &&
      message.query.purpose == MonitorQuery::Purpose::kAnnounceAbort) {
    message.abort_reason.code = reader.number<Errc>();
    reader.require(message.abort_reason.code <= Errc::kInternal, "unknown code of an abort");
    message.abort_reason.reason = reader.text();
    message.abort_reason.culprits = read_culprits(reader, size);
  }
  if (message.kind == Kind::kClosed && reader.number<uint8_t>() != 0)
    message.posted = reader.number<PostedCounts>();
  reader.require(reader.is_at_end(), "unexpected bytes at the end");
  return message;
}

}  // namespace torch::comms::monitor
