#include "side/note.hpp"

#include "base/utf8.hpp"

namespace torch::comms::side {
namespace {

constexpr size_t kMostText = 4000;

std::vector<int32_t> read_culprits(transport::ByteReader& reader, int size) {
  auto culprits = reader.list<int32_t>();
  for (const int rank : culprits)
    reader.require(rank >= 0 && rank < size, "a rank at fault that cannot be");
  return culprits;
}

}  // namespace

std::string Note::serialize() const {
  transport::ByteWriter writer;
  writer.add(kind).add(group).add(number).add(about).add(question).add(patience_ms);
  if (kind == Kind::kFound)
    writer.add(static_cast<uint8_t>(mismatch))
        .text(base::utf8_prefix(why, kMostText))
        .list(culprits, kMostCulprits);
  if (kind == Kind::kTell || kind == Kind::kCheck) answers.write(writer);
  if (kind == Kind::kAsk && question.aim == Question::Aim::kEnd)
    writer.add(ending.code)
        .text(base::utf8_prefix(ending.why, kMostText))
        .list(ending.culprits, kMostCulprits);
  if (kind == Kind::kClosed) {
    writer.add(static_cast<uint8_t>(posted.has_value()));
    if (posted) writer.add(*posted);
  }
  return writer.release();
}

Note Note::parse(std::string_view text, int size) {
  transport::ByteReader reader(text, "a note of the side channel");
  Note note;
  note.kind = reader.number<Kind>();
  note.group = reader.number<uint64_t>();
  note.number = reader.number<uint64_t>();
  note.about = reader.number<int32_t>();
  note.question = reader.number<Question>();
  note.patience_ms = reader.number<uint32_t>();
  reader.require(note.kind >= Kind::kLost && note.kind <= Kind::kGo, "unknown kind");
  reader.require(note.about >= -1 && note.about < size, "a rank that cannot be");
  reader.require(note.question.asker >= -1 && note.question.asker < size, "nobody can have asked");
  reader.require(note.question.aim <= Question::Aim::kEnd, "unknown aim of a question");
  if (note.kind == Kind::kFound) {
    note.mismatch = reader.number<uint8_t>() != 0;
    note.why = reader.text();
    note.culprits = read_culprits(reader, size);
  }
  if (note.kind == Kind::kTell || note.kind == Kind::kCheck)
    note.answers = Answers::read(reader, size);
  if (note.kind == Note::Kind::kAsk && note.question.aim == Question::Aim::kEnd) {
    note.ending.code = reader.number<Errc>();
    reader.require(note.ending.code <= Errc::kInternal, "unknown reason of an end");
    note.ending.why = reader.text();
    note.ending.culprits = read_culprits(reader, size);
  }
  if (note.kind == Kind::kClosed && reader.number<uint8_t>() != 0)
    note.posted = reader.number<Posted>();
  reader.require(reader.is_at_end(), "it goes on after its end");
  return note;
}

}  // namespace torch::comms::side
