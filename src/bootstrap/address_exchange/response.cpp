#include "bootstrap/address_exchange/response.hpp"

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

size_t response_bytes(std::span<const std::string> blobs, const BruckRounds& sender, int round,
                      std::string_view contact) noexcept {
  const int number = sender.blobs(round);
  size_t bytes = min_response_bytes(number) + contact.size();
  for (int i = 0; i < number; ++i) bytes += blobs[around(sender.rank, i, blobs.size())].size();
  return bytes;
}

ResponseWriter::ResponseWriter(const ExchangeFrame& head, std::span<const std::string> blobs,
                               std::string contact)
    : head_(head), blobs_(blobs), contact_(std::move(contact)) {
  head_.kind = ExchangeFrameKind::kResponse;
  head_.bytes =
      static_cast<uint32_t>(response_bytes(blobs, {head.from, head.size}, head.round, contact_));
}

bool ResponseWriter::write(size_t bytes, std::string& out) {
  const size_t end = out.size() + bytes;
  const int number = BruckRounds{head_.from, head_.size}.blobs(head_.round);
  if (next_ < 0) {
    out.append(reinterpret_cast<const char*>(&head_), sizeof head_);
    append_text(contact_, out);
    next_ = 0;
  }
  for (; next_ < number && out.size() < end; ++next_)
    append_text(blobs_[around(head_.from, next_, blobs_.size())], out);
  return next_ < number;
}

ResponseReader::ResponseReader(const ExchangeEndpointId& own_id, int source, int round,
                               std::span<std::string> blobs)
    : own_id_(own_id), source_(source), round_(round), blobs_(blobs) {}

ResponseReader::State ResponseReader::reject(DropReason why) {
  drop_reason_ = why;
  return State::kInvalid;
}

// Fills `into` from one or more calls. Returns: true once `size` bytes have been read.
bool ResponseReader::fill(void* into, size_t size, std::string_view& bytes) {
  const size_t part = std::min(size - bytes_read_, bytes.size());
  std::copy_n(bytes.begin(), part, static_cast<char*>(into) + bytes_read_);
  bytes.remove_prefix(part);
  bytes_read_ += part;
  if (bytes_read_ < size) return false;
  bytes_read_ = 0;
  return true;
}

ResponseReader::State ResponseReader::feed(std::string_view bytes) {
  while (state_ == State::kIncomplete && !bytes.empty()) {
    if (!has_header_)
      state_ = read_header(bytes);
    else if (head_.kind == ExchangeFrameKind::kFailure)
      state_ = read_failure(bytes);
    else
      state_ = read_text(bytes);
  }
  return state_;
}

ResponseReader::State ResponseReader::read_header(std::string_view& bytes) {
  if (!fill(&head_, sizeof head_, bytes)) return State::kIncomplete;
  if (const auto why = response_drop_reason(head_, own_id_, source_, round_);
      why != DropReason::kNone)
    return reject(why);
  if (head_.kind == ExchangeFrameKind::kResponse && blobs_.empty())
    return reject(DropReason::kUnknownProtocol);
  has_header_ = true;
  payload_left_ = head_.bytes;
  return State::kIncomplete;
}

ResponseReader::State ResponseReader::read_failure(std::string_view& bytes) {
  text_.append(bytes.substr(0, payload_left_ - text_.size()));
  bytes = {};
  if (text_.size() < payload_left_) return State::kIncomplete;
  auto notice = parse_notice(text_, own_id_.size);
  if (!notice) return reject(DropReason::kUnknownProtocol);
  failure_ = std::move(*notice);
  return State::kFailure;
}

ResponseReader::State ResponseReader::read_text(std::string_view& bytes) {
  if (!has_length_) {
    if (payload_left_ < sizeof length_) return reject(DropReason::kUnknownProtocol);
    if (!fill(&length_, sizeof length_, bytes)) return State::kIncomplete;
    payload_left_ -= sizeof length_;
    if (length_ > (next_ < 0 ? kMaxContactBytes : kMaxBlobBytes))
      return reject(DropReason::kTooLarge);
    if (length_ > payload_left_) return reject(DropReason::kUnknownProtocol);
    has_length_ = true;
    text_.resize(length_);
  }
  if (!fill(text_.data(), length_, bytes)) return State::kIncomplete;
  payload_left_ -= length_;
  has_length_ = false;
  if (!store_text(std::exchange(text_, {}))) return reject(DropReason::kUnknownProtocol);
  if (next_ < BruckRounds{source_, own_id_.size}.blobs(round_)) return State::kIncomplete;
  return payload_left_ == 0 ? State::kResponse : reject(DropReason::kUnknownProtocol);
}

bool ResponseReader::store_text(std::string text) {
  if (next_ < 0) {
    const bool wanted = BruckRounds{source_, own_id_.size}.has_next(round_);
    contact_ = std::move(text);
    if (contact_.empty() == wanted) return false;
  } else {
    blobs_[around(source_, next_, blobs_.size())] = std::move(text);
  }
  ++next_;
  return true;
}

}  // namespace torch::comms::bootstrap
