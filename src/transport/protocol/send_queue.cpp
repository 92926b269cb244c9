#include "transport/protocol/send_queue.hpp"

#include <algorithm>
#include <cstring>

namespace torch::comms::transport {

bool SendQueue::try_send(Frame frame, std::span<const ConstBytes> payload,
                         uint32_t* frames_in_use) {
  if (connection_ == nullptr) return false;
  if (ordinals_.empty()) ordinals_.resize(connection_->channels());
  frame.ordinal = ordinals_[frame.channel];
  if (!connection_->try_send(frame, payload, frames_in_use)) return false;
  ++ordinals_[frame.channel];
  return true;
}

void SendQueue::post(const Frame& frame, ConstBytes payload) {
  uint32_t frames_in_use = 0;
  QueuedControlFrame posted{frame, {}};
  posted.frame.bytes = static_cast<uint32_t>(payload.size());
  if (queued_control_.empty() && try_send(posted.frame, {&payload, 1}, &frames_in_use)) {
    TC_CHECK(frames_in_use == 0);  // connections copy such a small payload
    return;
  }
  TC_CHECK(payload.size() <= posted.payload.size());
  if (!payload.empty()) std::memcpy(posted.payload.data(), payload.data(), payload.size());
  queued_control_.push_back(posted);
}

bool SendQueue::send_control(bool& moved) {
  uint32_t frames_in_use = 0;
  while (!queued_control_.empty()) {
    const auto& next = queued_control_.front();
    const ConstBytes payload(next.payload.data(), next.frame.bytes);
    if (!try_send(next.frame, {&payload, 1}, &frames_in_use)) return false;
    TC_CHECK(frames_in_use == 0);
    queued_control_.pop_front();
    moved = true;
  }
  return true;
}

GatheredPieces SendQueue::gather(std::span<const ConstBytes> pieces, size_t piece, size_t in_piece,
                                 uint64_t limit) noexcept {
  GatheredPieces gathered;
  gathered.piece = piece;
  gathered.in_piece = in_piece;
  while (gathered.piece < pieces.size() && gathered.bytes < limit &&
         gathered.count < gathered.pieces.size()) {
    const auto rest = pieces[gathered.piece].subspan(gathered.in_piece);
    const auto part = rest.first(std::min<uint64_t>(rest.size(), limit - gathered.bytes));
    if (!part.empty()) gathered.pieces[gathered.count++] = part;
    gathered.bytes += static_cast<uint32_t>(part.size());
    gathered.in_piece += part.size();
    if (part.size() < rest.size()) break;
    ++gathered.piece;
    gathered.in_piece = 0;
  }
  return gathered;
}

void SendQueue::skip_to(Request& request, uint64_t from) noexcept {
  request.moved_ = from;
  request.piece_ = 0;
  while (request.piece_ < request.from_.size() && from >= request.from_[request.piece_].size())
    from -= request.from_[request.piece_++].size();
  request.in_piece_ = from;
}

bool SendQueue::try_channels(const Frame& frame, std::span<const ConstBytes> payload, bool large,
                             uint32_t* frames_in_use) {
  const unsigned large_channels = connection_ == nullptr ? 0 : connection_->channels() - 1;
  if (!large || large_channels == 0) return try_send(frame, payload, frames_in_use);
  Frame placed = frame;
  for (unsigned tried = 0; tried < large_channels; ++tried) {
    placed.channel = static_cast<uint8_t>(1 + next_channel_++ % large_channels);
    if (try_send(placed, payload, frames_in_use)) return true;
  }
  return false;
}

bool SendQueue::stream(Request& request, Frame header, uint64_t at, bool& moved) {
  if (connection_ == nullptr) return false;
  const uint64_t chunk = connection_->max_payload();
  while (request.moved_ < request.size_) {
    const auto next = gather(request.from_, request.piece_, request.in_piece_, chunk);
    header.bytes = next.bytes;
    header.value = at + request.moved_;
    if (!try_channels(header, {next.pieces.data(), next.count}, request.size_ > 2 * chunk,
                      &request.frames_in_use_))
      return false;
    request.piece_ = next.piece;
    request.in_piece_ = next.in_piece;
    request.moved_ += next.bytes;
    moved = true;
  }
  return true;
}

void SendQueue::finish_when_free(Request& request) {
  if (request.frames_in_use_ == 0)
    request.finish();
  else
    awaiting_memory_.push_back(&request);
}

bool SendQueue::finish_freed() {
  return std::erase_if(awaiting_memory_, [](Request* request) {
           if (request->frames_in_use_ > 0) return false;
           request->finish();
           return true;
         }) > 0;
}

void SendQueue::cancel_sends(uint32_t first, uint32_t last, Errc error) {
  const auto ends = [&](Request* request) {
    if (request->kind_ != Request::Kind::kSend || request->stream_ < first ||
        request->stream_ > last)
      return false;
    reclaim(*request);
    request->finish(error);
    return true;
  };
  std::erase_if(ready, ends);
  std::erase_if(awaiting_memory_, ends);
}

// Makes the connection copy data of the request that it has begun to send.
void SendQueue::reclaim(Request& request) {
  if (request.frames_in_use_ > 0)
    for (const auto& piece : request.from_) connection_->cancel_writes(piece);
  TC_CHECK(request.frames_in_use_ == 0);
}

void SendQueue::cancel(Request& request, Errc error) {
  reclaim(request);
  std::erase(ready, &request);
  std::erase(awaiting_memory_, &request);
  request.finish(error);
}

void SendQueue::cancel_writes(ConstBytes range) noexcept {
  if (connection_ != nullptr) connection_->cancel_writes(range);
}

void SendQueue::fail(Errc error) noexcept {
  for (auto* request : ready) request->finish(error);
  for (auto* request : awaiting_memory_) request->finish(error);
  ready.clear();
  awaiting_memory_.clear();
  queued_control_.clear();
  connection_ = nullptr;
}

}  // namespace torch::comms::transport
