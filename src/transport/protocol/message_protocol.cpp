#include "transport/protocol/message_protocol.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/os/streaming_copy.hpp"

namespace torch::comms::transport {
namespace {

// The largest number of RTS, CTS and unexpected messages of one peer that wait for their partner.
constexpr uint64_t kMaxEarly = 1u << 20;
constexpr size_t kMostSpare = 64, kMostSpareBytes = 256u << 10;

}  // namespace

void scatter(std::span<const Bytes> pieces, uint64_t offset, ConstBytes chunk,
             bool past_caches) noexcept {
  for (const auto& piece : pieces) {
    if (chunk.empty()) return;
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    const auto part = chunk.first(std::min<size_t>(piece.size() - offset, chunk.size()));
    base::copy_bytes(piece.data() + offset, part.data(), part.size(), past_caches);
    chunk = chunk.subspan(part.size());
    offset = 0;
  }
}

Bytes contiguous(std::span<const Bytes> pieces, uint64_t offset, uint64_t size) noexcept {
  for (const auto& piece : pieces) {
    if (offset < piece.size())
      return size <= piece.size() - offset ? piece.subspan(offset, size) : Bytes{};
    offset -= piece.size();
  }
  return {};
}

Request* MessageProtocol::ReceiveStream::find(uint32_t number) const noexcept {
  const uint32_t index = number - first;
  return index < posted.size() ? posted[index] : nullptr;
}

void MessageProtocol::ReceiveStream::remove(uint32_t number) noexcept {
  posted[number - first] = nullptr;
  while (!posted.empty() && posted[0] == nullptr) {
    posted.pop_front();
    ++first;
  }
}

MessageProtocol::SendStream* MessageProtocol::sends(uint32_t stream) {
  if (last_sends_.second != nullptr && last_sends_.first == stream) return last_sends_.second;
  const auto found = sends_.find(stream);
  if (found == sends_.end() && closed_.contains(stream)) return nullptr;
  last_sends_ = {stream, found != sends_.end() ? &found->second : &sends_[stream]};
  return last_sends_.second;
}

MessageProtocol::ReceiveStream* MessageProtocol::receives(uint32_t stream) {
  if (last_receives_.second != nullptr && last_receives_.first == stream)
    return last_receives_.second;
  const auto found = receives_.find(stream);
  if (found == receives_.end() && closed_.contains(stream)) return nullptr;
  last_receives_ = {stream, found != receives_.end() ? &found->second : &receives_[stream]};
  return last_receives_.second;
}

bool MessageProtocol::has_credit(uint64_t bytes, uint64_t most, size_t pieces) const noexcept {
  return bytes <= most && pieces <= PeerConnection::kMaxPieces &&
         credit_in_use_ + credit_cost(bytes) <= options_.eager_credit;
}

bool MessageProtocol::try_eager(Request& request) {
  const auto frame = frame_of(FrameKind::kEager, request);
  if (!send_eager(frame, request.size_, request.from_, &request.frames_in_use_)) return false;
  request.moved_ = request.size_;
  return true;
}

// Tries to send a large message eagerly and measures how long that takes.
bool MessageProtocol::try_timed(Request& request) {
  const auto began = std::exchange(request.began_, {});
  if (!try_eager(request)) return false;
  eager_tuner_.on_sent(request.size_, Clock::now() - began);
  return true;
}

bool MessageProtocol::send_eager(Frame frame, uint64_t size, std::span<const ConstBytes> pieces,
                                 uint32_t* frames_in_use) {
  frame.bytes = static_cast<uint32_t>(size);
  // Waiting control frames go first: the peer has the answers to its messages before it sees this
  // message.
  if (out_.has_queued_control() || !out_.try_send(frame, pieces, frames_in_use)) return false;
  credit_in_use_ += credit_cost(size);
  return true;
}

Frame MessageProtocol::frame_of(FrameKind kind, const Request& request) noexcept {
  Frame frame;
  frame.kind = kind;
  frame.stream = request.stream_;
  frame.sequence = request.sequence_;
  frame.key = request.key_;
  return frame;
}

// Records that the receive is posted. `offset_` of a message is the receive's capacity.
void MessageProtocol::apply_cts(Request& request, const ReceivedCts& cts) noexcept {
  request.is_cleared_ = true;
  request.offset_ = cts.capacity;
  request.is_mismatched_ = cts.tag != request.key_ || cts.capacity < request.size_;
}

void MessageProtocol::send(Request& request) {
  auto* stream = sends(request.stream_);
  if (stream == nullptr) return request.finish(Errc::kFinalized);
  auto& out = *stream;
  request.sequence_ = out.next++;
  if (request.size_ > options_.eager_bytes) ++large_sends_;
  if (!out.early_cts.empty()) {
    if (const auto early = out.early_cts.extract(request.sequence_)) {
      apply_cts(request, early.mapped());
      --unmatched_entries_;
    }
  }
  // An eager message may overtake waiting ones: messages are matched by their numbers.
  if ((has_credit(request.size_, options_.eager_bytes, request.from_.size()) &&
       try_eager(request)) ||
      (is_sent_eagerly(request) && try_timed(request))) {
    out_.finish_when_free(request);
    return;
  }
  out.open.emplace(request.sequence_, &request);
  out_.ready.push_back(&request);
}

bool MessageProtocol::push(Request& request, bool& moved) {
  auto& open = sends(request.stream_)->open;
  if (!request.is_announced_ &&
      has_credit(request.size_, options_.eager_bytes, request.from_.size())) {
    if (!try_eager(request)) return false;
  } else {
    if (!request.is_announced_) {
      if (!send_rts(request)) return false;
      moved = true;
      if (!request.is_cleared_) return true;  // on_cts() puts it back into `ready`
    }
    if (request.is_mismatched_) {  // the receiver has seen it in kRts
      open.erase(request.sequence_);
      request.finish(Errc::kMismatch);
      return true;
    }
    if (!out_.stream(request, frame_of(FrameKind::kData, request), 0, moved)) return false;
  }
  moved = true;
  open.erase(request.sequence_);
  out_.finish_when_free(request);
  return true;
}

void MessageProtocol::send_cts(Request& request, ConstBytes payload) {
  request.is_cleared_ = true;
  auto frame = frame_of(FrameKind::kCts, request);
  frame.value = request.size_;
  out_.post(frame, payload);
}

void MessageProtocol::receive(Request& request) {
  auto* stream = receives(request.stream_);
  if (stream == nullptr) return request.finish(Errc::kFinalized);
  auto& in = *stream;
  request.sequence_ = in.next++;
  request.sends_before_ = large_sends_;
  if (request.size_ > options_.eager_bytes) ++large_receives_;
  if (in.posted.empty()) in.first = request.sequence_;
  in.posted.push_back(&request);
  if (!in.unexpected.empty()) {
    if (const auto found = in.unexpected.find(request.sequence_); found != in.unexpected.end()) {
      auto node = extract_unexpected(in, found);
      auto& early = node.mapped();
      if (!early.is_whole) {
        start_receive(in, request, early.length, early.tag, early.data);
        return;
      }
      receive_whole(request, early.tag, early.data);
      in.remove(request.sequence_);
      recycle_node(std::move(node));
      return;
    }
  }
  if (request.size_ > options_.eager_bytes &&
      (!can_read_remotely(request) || uses_copy_in_out(request)))
    send_cts(request);
}

// Removes an unexpected message whose receive is posted now.
MessageProtocol::UnexpectedNode MessageProtocol::extract_unexpected(ReceiveStream& in,
                                                                    UnexpectedIterator place) {
  --unmatched_entries_;
  if (place->second.is_whole) unexpected_bytes_ -= credit_cost(place->second.data.size());
  return in.unexpected.extract(place);
}

// Keeps the node of an unexpected message for the next ones.
void MessageProtocol::recycle_node(UnexpectedNode node) {
  const auto bytes = node.mapped().data.capacity();
  if (spare_nodes_.size() == kMostSpare || bytes > kMostSpareBytes - spare_bytes_) return;
  spare_bytes_ += bytes;
  spare_nodes_.push_back(std::move(node));
}

const MessageProtocol::UnexpectedMessage* MessageProtocol::next_unexpected(
    uint32_t stream) const noexcept {
  const auto in = receives_.find(stream);
  if (in == receives_.end()) return nullptr;
  const auto early = in->second.unexpected.find(in->second.next);
  return early == in->second.unexpected.end() ? nullptr : &early->second;
}

bool MessageProtocol::has_whole_unexpected(uint32_t stream) const noexcept {
  const auto* early = next_unexpected(stream);
  return early != nullptr && early->is_whole;
}

// Completes a receive with an eager message.
void MessageProtocol::receive_whole(Request& request, uint32_t tag, ConstBytes whole) {
  return_credit(credit_cost(whole.size()));
  end_copy_in_out(request);
  if (whole.size() > request.size_ || tag != request.key_) {
    request.moved_ = whole.size();
    request.key_ = tag;
    request.finish(Errc::kMismatch);
    return;
  }
  if (request.sink_ != nullptr) {
    if (!whole.empty()) request.sink_->consume(0, whole);
  } else {
    scatter(request.into_, 0, whole);
  }
  request.moved_ = whole.size();
  request.finish();
}

// Keeps an eager message until its receive is posted.
// Returns: false if a message with this number exists already.
bool MessageProtocol::store_unexpected(ReceiveStream& in, const Frame& frame, ConstBytes payload) {
  if (spare_nodes_.empty()) {
    UnexpectedMessage early{payload.size(), frame.key, true, {payload.begin(), payload.end()}};
    return in.unexpected.emplace(frame.sequence, std::move(early)).second;
  }
  UnexpectedNode node = std::move(spare_nodes_.back());
  spare_nodes_.pop_back();
  spare_bytes_ -= node.mapped().data.capacity();
  node.key() = frame.sequence;
  auto& early = node.mapped();
  early.length = payload.size();
  early.tag = frame.key;
  early.is_whole = true;
  early.data.assign(payload.begin(), payload.end());
  return in.unexpected.insert(std::move(node)).inserted;
}

const char* MessageProtocol::on_eager(const Frame& frame, ConstBytes payload) {
  auto* stream = receives(frame.stream);
  if (stream == nullptr) {
    return_credit(credit_cost(payload.size()));
    return nullptr;
  }
  auto& in = *stream;
  if (auto* request = in.find(frame.sequence)) {
    if (request->is_announced_ || request->moved_ > 0) return "a message arrived twice";
    receive_whole(*request, frame.key, payload);
    in.remove(frame.sequence);
    return nullptr;
  }
  if (!in.comes_later(frame.sequence)) return "a message arrived twice";
  if (unexpected_bytes_ + credit_cost(payload.size()) > options_.eager_credit ||
      unmatched_entries_ >= kMaxEarly)
    return "eager messages exceed the credit";
  if (!store_unexpected(in, frame, payload)) return "a message arrived twice";
  unexpected_bytes_ += credit_cost(payload.size());
  ++unmatched_entries_;
  return nullptr;
}

const char* MessageProtocol::start_receive(ReceiveStream& in, Request& request, uint64_t length,
                                           uint32_t tag, ConstBytes offer) {
  if (request.is_announced_) return "RTS of one message arrived twice";
  if (length < request.moved_) return "a message has more data than its RTS announced";
  request.is_announced_ = true;
  if (length > request.size_ || tag != request.key_) {
    if (!request.is_cleared_) {
      auto frame = frame_of(FrameKind::kNack, request);
      frame.value = request.size_;
      out_.post(frame);
    }
    end_copy_in_out(request);
    request.moved_ = length;
    request.key_ = tag;
    request.finish(Errc::kMismatch);
    in.remove(request.sequence_);
    return nullptr;
  }
  if (request.uses_copy_in_out_ && request.is_timed_) request.began_ = Clock::now();
  if (!request.is_cleared_ && !offer.empty() && can_read_remotely(request)) {
    const auto read = RemoteReadDescriptor::parse(offer, length);
    if (!read) return "the remote read descriptor does not match its message";
    const bool views = !out_.map_view(*read, 0, 1).empty();
    if (request.sink_ == nullptr || views) {
      request.size_ = length;
      reads_.push_back({.request = &request, .descriptor = *read, .is_mapped = views});
      return nullptr;
    }
  }
  if (!request.is_cleared_) send_cts(request);
  request.size_ = length;
  if (request.moved_ == length) {
    end_copy_in_out(request);
    request.finish();
    in.remove(request.sequence_);
  }
  return nullptr;
}

const char* MessageProtocol::on_rts(const Frame& frame, ConstBytes payload) {
  auto* stream = receives(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& in = *stream;
  if (auto* request = in.find(frame.sequence))
    return start_receive(in, *request, frame.value, frame.key, payload);
  if (!in.comes_later(frame.sequence)) return "RTS of one message arrived twice";
  if (unmatched_entries_ >= kMaxEarly) return "too many messages wait for a receive";
  UnexpectedMessage early{frame.value, frame.key, false, {payload.begin(), payload.end()}};
  if (!in.unexpected.emplace(frame.sequence, std::move(early)).second)
    return "RTS of one message arrived twice";
  ++unmatched_entries_;
  return nullptr;
}

const char* MessageProtocol::on_cts(const Frame& frame, ConstBytes payload) {
  auto* stream = sends(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& out = *stream;
  const auto open = out.open.find(frame.sequence);
  if (open == out.open.end()) {
    if (int32_t(frame.sequence - out.next) < 0) return nullptr;  // it was sent as an eager message
    if (unmatched_entries_ >= kMaxEarly) return "too many receives wait for a send";
    if (!out.early_cts.emplace(frame.sequence, ReceivedCts{frame.value, frame.key}).second)
      return "CTS of one message arrived twice";
    ++unmatched_entries_;
    return nullptr;
  }
  auto& request = *open->second;
  if (request.is_cleared_) return "CTS of one message arrived twice";
  if (!payload.empty()) {
    CtsFrame cts;
    std::memcpy(&cts, payload.data(), sizeof cts);
    if (!request.is_announced_ || cts.from >= request.size_)
      return "CTS with an offset outside of its message";
    SendQueue::skip_to(request, cts.from);
  }
  request.end_remote_read();
  if (is_timed(std::exchange(request.began_, {}))) eager_tuner_.on_peer_refused(request.size_);
  apply_cts(request, {frame.value, frame.key});
  if (!request.is_announced_) return nullptr;  // it is still in `ready`
  out_.ready.push_back(&request);
  return nullptr;
}

const char* MessageProtocol::on_nack(const Frame& frame) {
  auto* stream = sends(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& out = *stream;
  const auto open = out.open.find(frame.sequence);
  if (open == out.open.end() || !open->second->is_announced_ || open->second->is_cleared_)
    return "NACK of a message that was not announced";
  open->second->finish(Errc::kMismatch);
  out.open.erase(open);
  return nullptr;
}

Bytes MessageProtocol::data_target(const Frame& frame) {
  const auto* in = receives(frame.stream);
  const auto* request = in == nullptr ? nullptr : in->find(frame.sequence);
  if (request == nullptr || !request->is_cleared_ || request->sink_ != nullptr) return {};
  if (frame.value > request->size_ || frame.bytes > request->size_ - frame.value) return {};
  return contiguous(request->into_, frame.value, frame.bytes);
}

const char* MessageProtocol::on_data(const Frame& frame, ConstBytes payload) {
  auto* stream = receives(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& in = *stream;
  auto* request = in.find(frame.sequence);
  if (request == nullptr || !request->is_cleared_) return "data of a message without CTS";
  if (frame.value > request->size_ || frame.bytes > request->size_ - frame.value ||
      request->moved_ + frame.bytes > request->size_)
    return "data outside of the message";
  const CopyTimer timer(*request);
  if (request->sink_ != nullptr)
    request->sink_->consume(frame.value, payload);
  else if (contiguous(request->into_, frame.value, frame.bytes).data() != payload.data())
    scatter(request->into_, frame.value, payload, request->is_non_temporal_);
  timer.stop();
  request->moved_ += frame.bytes;
  if (request->is_announced_ && request->moved_ == request->size_) {
    record_time(*request, CopyPathTuner::CopyPath::kCopyInOut);
    end_copy_in_out(*request);
    request->finish();
    in.remove(frame.sequence);
  }
  return nullptr;
}

const char* MessageProtocol::on_credit(const Frame& frame) {
  if (frame.value > credit_in_use_) return "more credit was returned than used";
  credit_in_use_ -= frame.value;
  return nullptr;
}

void MessageProtocol::return_credit(uint64_t bytes) {
  credit_to_return_ += bytes;
  if (credit_to_return_ < options_.eager_credit / 4) return;
  Frame frame;
  frame.kind = FrameKind::kCredit;
  frame.value = credit_to_return_;
  credit_to_return_ = 0;
  out_.post(frame);
}

// Stops all writes into the memory of `receive`.
void MessageProtocol::forget(Request& receive) {
  end_copy_in_out(receive);
  for (const auto& piece : receive.into_) out_.cancel_writes(piece);
  std::erase_if(reads_, [&](const RemoteRead& fetch) { return fetch.request == &receive; });
}

void MessageProtocol::cancel(Request& request, Errc error) {
  if (request.kind_ == Request::Kind::kSend) {
    sends(request.stream_)->open.erase(request.sequence_);
    return out_.cancel(request, error);
  }
  forget(request);
  receives(request.stream_)->remove(request.sequence_);
  request.finish(error);
}

void MessageProtocol::close(uint32_t first, uint32_t last, Errc error) {
  const auto inside = [&](const auto& entry) {
    return entry.first >= first && entry.first <= last;
  };
  out_.cancel_sends(first, last, error);
  std::erase_if(sends_, [&](auto& entry) {
    if (!inside(entry)) return false;
    for (auto& [sequence, request] : entry.second.open)  // sends that wait for kCts
      if (!request->is_done()) request->finish(error);
    unmatched_entries_ -= entry.second.early_cts.size();
    return true;
  });
  std::erase_if(receives_, [&](auto& entry) {
    if (!inside(entry)) return false;
    for (auto* request : entry.second.posted.all()) {
      if (request == nullptr) continue;
      forget(*request);
      request->finish(error);
    }
    for (auto& [sequence, early] : entry.second.unexpected) {
      --unmatched_entries_;
      if (!early.is_whole) continue;
      unexpected_bytes_ -= credit_cost(early.data.size());
      return_credit(credit_cost(early.data.size()));
    }
    return true;
  });
  last_sends_ = {};
  last_receives_ = {};
}

void MessageProtocol::fail(Errc error) noexcept {
  reads_.clear();
  copy_in_out_in_flight_ = 0;
  for (auto& [stream, out] : sends_) {
    for (auto& [sequence, request] : out.open) request->finish(error);
    out.open.clear();
  }
  for (auto& [stream, in] : receives_) {
    for (auto* request : in.posted.all())
      if (request != nullptr) request->finish(error);
    in.posted.clear();
    unmatched_entries_ -=
        std::erase_if(in.unexpected, [](const auto& early) { return !early.second.is_whole; });
  }
}

}  // namespace torch::comms::transport
