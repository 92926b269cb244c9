#include "transport/outbox.hpp"

#include <algorithm>
#include <cstring>

namespace torch::comms::transport {

bool Outbox::try_send(Frame frame, std::span<const ConstBytes> payload, uint32_t* borrowed) {
  if (channel_ == nullptr) return false;
  if (ordinals_.empty()) ordinals_.resize(channel_->lanes());
  frame.ordinal = ordinals_[frame.lane];
  if (!channel_->try_send(frame, payload, borrowed)) return false;
  ++ordinals_[frame.lane];
  return true;
}

void Outbox::post(const Frame& frame, ConstBytes payload) {
  uint32_t borrowed = 0;
  Posted posted{frame, {}};
  posted.frame.bytes = static_cast<uint32_t>(payload.size());
  if (posted_.empty() && try_send(posted.frame, {&payload, 1}, &borrowed)) {
    TC_CHECK(borrowed == 0);  // channels copy what is this small
    return;
  }
  TC_CHECK(payload.size() <= posted.payload.size());
  if (!payload.empty()) std::memcpy(posted.payload.data(), payload.data(), payload.size());
  posted_.push_back(posted);
}

bool Outbox::send_posted(bool& moved) {
  uint32_t borrowed = 0;
  while (!posted_.empty()) {
    const auto& next = posted_.front();
    const ConstBytes payload(next.payload.data(), next.frame.bytes);
    if (!try_send(next.frame, {&payload, 1}, &borrowed)) return false;
    TC_CHECK(borrowed == 0);
    posted_.pop_front();
    moved = true;
  }
  return true;
}

Gathered Outbox::gather(std::span<const ConstBytes> pieces, size_t piece, size_t in_piece,
                        uint64_t limit) noexcept {
  Gathered found;
  found.piece = piece;
  found.in_piece = in_piece;
  while (found.piece < pieces.size() && found.bytes < limit && found.count < found.pieces.size()) {
    const auto rest = pieces[found.piece].subspan(found.in_piece);
    const auto taken = rest.first(std::min<uint64_t>(rest.size(), limit - found.bytes));
    if (!taken.empty()) found.pieces[found.count++] = taken;
    found.bytes += static_cast<uint32_t>(taken.size());
    found.in_piece += taken.size();
    if (taken.size() < rest.size()) break;
    ++found.piece;
    found.in_piece = 0;
  }
  return found;
}

void Outbox::skip(Request& request, uint64_t from) noexcept {
  request.moved_ = from;
  request.piece_ = 0;
  while (request.piece_ < request.from_.size() && from >= request.from_[request.piece_].size())
    from -= request.from_[request.piece_++].size();
  request.in_piece_ = from;
}

bool Outbox::try_lanes(const Frame& frame, std::span<const ConstBytes> payload, bool large,
                       uint32_t* borrowed) {
  const unsigned wide = channel_ == nullptr ? 0 : channel_->lanes() - 1;
  if (!large || wide == 0) return try_send(frame, payload, borrowed);
  Frame placed = frame;
  for (unsigned tried = 0; tried < wide; ++tried) {
    placed.lane = static_cast<uint8_t>(1 + next_lane_++ % wide);
    if (try_send(placed, payload, borrowed)) return true;
  }
  return false;
}

bool Outbox::stream(Request& request, Frame head, uint64_t at, bool& moved) {
  if (channel_ == nullptr) return false;
  const uint64_t chunk = channel_->max_payload();
  while (request.moved_ < request.size_) {
    const auto next = gather(request.from_, request.piece_, request.in_piece_, chunk);
    head.bytes = next.bytes;
    head.value = at + request.moved_;
    if (!try_lanes(head, {next.pieces.data(), next.count}, request.size_ > 2 * chunk,
                   &request.borrowed_))
      return false;
    request.piece_ = next.piece;
    request.in_piece_ = next.in_piece;
    request.moved_ += next.bytes;
    moved = true;
  }
  return true;
}

void Outbox::finish_when_free(Request& request) {
  if (request.borrowed_ == 0)
    request.finish();
  else
    borrowed_.push_back(&request);
}

bool Outbox::finish_freed() {
  return std::erase_if(borrowed_, [](Request* request) {
           if (request->borrowed_ > 0) return false;
           request->finish();
           return true;
         }) > 0;
}

void Outbox::end_sends(uint32_t first, uint32_t last, Errc error) {
  const auto ends = [&](Request* request) {
    if (request->kind_ != Request::Kind::kSend || request->stream_ < first ||
        request->stream_ > last)
      return false;
    take_back(*request);
    request->finish(error);
    return true;
  };
  std::erase_if(ready, ends);
  std::erase_if(borrowed_, ends);
}

// The channel makes copies of what it has begun to send.
void Outbox::take_back(Request& request) {
  if (request.borrowed_ > 0)
    for (const auto& piece : request.from_) channel_->withdraw(piece);
  TC_CHECK(request.borrowed_ == 0);
}

void Outbox::end(Request& request, Errc error) {
  take_back(request);
  std::erase(ready, &request);
  std::erase(borrowed_, &request);
  request.finish(error);
}

void Outbox::withdraw(ConstBytes range) noexcept {
  if (channel_ != nullptr) channel_->withdraw(range);
}

void Outbox::fail(Errc error) noexcept {
  for (auto* request : ready) request->finish(error);
  for (auto* request : borrowed_) request->finish(error);
  ready.clear();
  borrowed_.clear();
  posted_.clear();
  channel_ = nullptr;
}

}  // namespace torch::comms::transport
