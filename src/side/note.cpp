#include "side/note.hpp"

namespace torch::comms::side {
namespace {

constexpr size_t kMostText = 4000;

}  // namespace

std::string Note::serialize() const {
  transport::Writer writer;
  writer.add(kind).add(group).add(number).add(about).add(question).add(patience_ms);
  if (kind == Kind::kFound)
    writer.add(static_cast<uint8_t>(mismatch))
        .text(std::string_view(why).substr(0, kMostText))
        .list(culprits, kMostCulprits);
  if (kind == Kind::kTell || kind == Kind::kCheck) answers.write(writer);
  return writer.take();
}

Note Note::parse(std::string_view text, int size) {
  transport::Reader reader(text, "a note of the side channel");
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
  if (note.kind == Kind::kFound) {
    note.mismatch = reader.number<uint8_t>() != 0;
    note.why = reader.text();
    note.culprits = reader.list<int32_t>();
    for (const int rank : note.culprits)
      reader.require(rank >= 0 && rank < size, "a rank at fault that cannot be");
  }
  if (note.kind == Kind::kTell || note.kind == Kind::kCheck)
    note.answers = Answers::read(reader, size);
  reader.require(reader.at_end(), "it goes on after its end");
  return note;
}

}  // namespace torch::comms::side
