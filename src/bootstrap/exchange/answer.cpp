#include "bootstrap/exchange/answer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace torch::comms::bootstrap {
namespace {

void append_text(std::string_view text, std::string& out) {
  const auto length = static_cast<uint16_t>(text.size());
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  out.append(text);
}

size_t around(int rank, int distance, size_t size) {
  return (static_cast<size_t>(rank) + static_cast<size_t>(distance)) % size;
}

}  // namespace

size_t answer_bytes(std::span<const std::string> blobs, const Rounds& sender, int round,
                    std::string_view contact) noexcept {
  const int number = sender.blobs(round);
  size_t bytes = least_answer_bytes(number) + contact.size();
  for (int i = 0; i < number; ++i) bytes += blobs[around(sender.rank, i, blobs.size())].size();
  return bytes;
}

AnswerWriter::AnswerWriter(const Frame& head, std::span<const std::string> blobs,
                           std::string contact)
    : head_(head), blobs_(blobs), contact_(std::move(contact)) {
  head_.kind = FrameKind::kAnswer;
  head_.bytes =
      static_cast<uint32_t>(answer_bytes(blobs, {head.from, head.size}, head.round, contact_));
}

bool AnswerWriter::write(size_t bytes, std::string& out) {
  const size_t end = out.size() + bytes;
  const int number = Rounds{head_.from, head_.size}.blobs(head_.round);
  if (next_ < 0) {
    out.append(reinterpret_cast<const char*>(&head_), sizeof head_);
    append_text(contact_, out);
    next_ = 0;
  }
  for (; next_ < number && out.size() < end; ++next_)
    append_text(blobs_[around(head_.from, next_, blobs_.size())], out);
  return next_ < number;
}

ReplyReader::ReplyReader(const Door& door, int source, int round, std::span<std::string> blobs)
    : door_(door), source_(source), round_(round), blobs_(blobs) {}

ReplyReader::State ReplyReader::refuse(Refusal why) {
  wrong_ = why;
  return State::kWrong;
}

// True when `size` bytes are there; they may have come in any number of parts.
bool ReplyReader::fill(void* into, size_t size, std::string_view& bytes) {
  const size_t part = std::min(size - have_, bytes.size());
  std::copy_n(bytes.begin(), part, static_cast<char*>(into) + have_);
  bytes.remove_prefix(part);
  have_ += part;
  if (have_ < size) return false;
  have_ = 0;
  return true;
}

ReplyReader::State ReplyReader::take(std::string_view bytes) {
  while (state_ == State::kNotYet && !bytes.empty()) {
    if (!headed_)
      state_ = take_head(bytes);
    else if (head_.kind == FrameKind::kNotice)
      state_ = take_notice(bytes);
    else
      state_ = take_text(bytes);
  }
  return state_;
}

ReplyReader::State ReplyReader::take_head(std::string_view& bytes) {
  if (!fill(&head_, sizeof head_, bytes)) return State::kNotYet;
  if (const auto why = why_not_reply(head_, door_, source_, round_); why != Refusal::kNone)
    return refuse(why);
  if (head_.kind == FrameKind::kAnswer && blobs_.empty()) return refuse(Refusal::kNotOurs);
  headed_ = true;
  left_ = head_.bytes;
  return State::kNotYet;
}

ReplyReader::State ReplyReader::take_notice(std::string_view& bytes) {
  text_.append(bytes.substr(0, left_ - text_.size()));
  bytes = {};
  if (text_.size() < left_) return State::kNotYet;
  auto notice = parse_notice(text_, door_.size);
  if (!notice) return refuse(Refusal::kNotOurs);
  notice_ = std::move(*notice);
  return State::kNotice;
}

ReplyReader::State ReplyReader::take_text(std::string_view& bytes) {
  if (!measured_) {
    if (left_ < sizeof length_) return refuse(Refusal::kNotOurs);
    if (!fill(&length_, sizeof length_, bytes)) return State::kNotYet;
    left_ -= sizeof length_;
    if (length_ > (next_ < 0 ? kMaxContactBytes : kMaxBlobBytes)) return refuse(Refusal::kTooLarge);
    if (length_ > left_) return refuse(Refusal::kNotOurs);
    measured_ = true;
    text_.resize(length_);
  }
  if (!fill(text_.data(), length_, bytes)) return State::kNotYet;
  left_ -= length_;
  measured_ = false;
  if (!keep(std::exchange(text_, {}))) return refuse(Refusal::kNotOurs);
  if (next_ < Rounds{source_, door_.size}.blobs(round_)) return State::kNotYet;
  return left_ == 0 ? State::kAnswer : refuse(Refusal::kNotOurs);
}

bool ReplyReader::keep(std::string text) {
  if (next_ < 0) {
    const bool wanted = Rounds{source_, door_.size}.has_next(round_);
    contact_ = std::move(text);
    if (contact_.empty() == wanted) return false;
  } else {
    blobs_[around(source_, next_, blobs_.size())] = std::move(text);
  }
  ++next_;
  return true;
}

}  // namespace torch::comms::bootstrap
