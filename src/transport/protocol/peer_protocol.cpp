#include "transport/protocol/peer_protocol.hpp"

#include <new>

namespace torch::comms::transport {

PeerState PeerProtocol::state() const noexcept {
  if (failure_) return PeerState::kFailed;
  return connection_ ? PeerState::kReady : PeerState::kConnecting;
}

void PeerProtocol::open(std::unique_ptr<PeerConnection> peer_connection) {
  connection_ = std::move(peer_connection);
  ordinals_.assign(connection_->channels(), 0);
  send_queue_.attach(connection_.get());
}

bool PeerProtocol::send_ready() {
  bool moved = false;
  if (!connection_ || !send_queue_.send_control(moved)) return moved;
  while (!send_queue_.ready.empty()) {
    auto& request = *send_queue_.ready.front();
    const bool message = request.kind_ == Request::Kind::kSend;
    if (!(message ? messages.push(request, moved) : one_sided.push(request, moved))) break;
    send_queue_.ready.pop_front();
  }
  return moved;
}

bool PeerProtocol::try_receive(uint32_t stream, const ReceiveTarget& target, uint32_t tag) {
  if (messages.take_unexpected(stream, target, tag)) return true;
  Frame frame;
  ConstBytes payload;
  if (!connection_ || !connection_->peek(frame, payload)) return false;
  // Other frames are left to progress().
  const bool is_expected = frame.kind == FrameKind::kEager && frame.stream == stream &&
                           frame.key == tag && frame.bytes == target.bytes && frame.channel == 0 &&
                           frame.ordinal == ordinals_[0] && messages.is_next(frame);
  if (!is_expected) return false;
  target.write(payload);
  ++ordinals_[0];
  connection_->pop();
  messages.on_received_in_place(frame);
  return true;
}

bool PeerProtocol::is_next_in_front(uint32_t stream) noexcept {
  Frame frame;
  ConstBytes payload;
  return connection_ && connection_->peek(frame, payload) && frame.kind == FrameKind::kEager &&
         frame.stream == stream && messages.is_next(frame);
}

bool PeerProtocol::progress() noexcept {
  if (!connection_) return false;
  try {
    bool moved = connection_->flush();
    const auto received = connection_->receive(*this);
    moved |= received == PeerConnection::ReceiveStatus::kSome;
    if (is_out_of_memory_) throw std::bad_alloc();
    if (!violation_.empty()) {
      fail(Errc::kPeerFailed, "protocol error: " + violation_);
      return true;
    }
    moved |= messages.progress_reads();
    if (send_queue_.has_waiting()) moved |= send_ready();
    moved |= send_queue_.finish_freed();
    one_sided.finish_replies();
    if (received != PeerConnection::ReceiveStatus::kBroken) return moved;
    fail(connection_->error_code(), connection_->error_text());
  } catch (const std::bad_alloc&) {
    fail(Errc::kResourceExhausted, "out of memory for messages of the peer");
  }
  return true;
}

void PeerProtocol::fail(Errc code, const std::string& why) noexcept {
  if (failure_) return;
  failure_ = PeerFailure{code, "rank " + std::to_string(rank_) + ": " + why};
  connection_.reset();  // gives back borrowed memory
  send_queue_.fail(code);
  messages.fail(code);
  one_sided.fail(code);
}

void PeerProtocol::cancel_access(ConstBytes range) {
  if (!connection_) return;
  connection_->cancel_writes(range);
  one_sided.cancel_reads(range);
}

bool PeerProtocol::prepare_sleep() noexcept {
  return !connection_ ||
         (!messages.has_reads() && connection_->prepare_sleep(send_queue_.has_waiting()));
}

Bytes PeerProtocol::payload_target(const Frame& frame) noexcept {
  switch (frame.kind) {
    case FrameKind::kData:
      return messages.data_target(frame);
    case FrameKind::kPut:
      return one_sided.put_target(frame);
    case FrameKind::kGetReply:
      return one_sided.get_reply_target(frame);
    default:
      return {};
  }
}

bool PeerProtocol::deliver(const Frame& frame, ConstBytes payload) noexcept {
  if (is_out_of_memory_ || !violation_.empty()) return false;
  try {
    const char* error = frame_error(frame, connection_->max_payload(), connection_->channels());
    if (error == nullptr && frame.ordinal != ordinals_[frame.channel])
      error =
          frame.ordinal < ordinals_[frame.channel] ? "a frame arrived twice" : "a frame was lost";
    if (error == nullptr) {
      ++ordinals_[frame.channel];
      error = dispatch(frame, payload);
    }
    if (error != nullptr) violation_ = error;
  } catch (const std::bad_alloc&) {
    is_out_of_memory_ = true;
  }
  return !is_out_of_memory_ && violation_.empty() && !messages.ends_turn(frame);
}

const char* PeerProtocol::dispatch(const Frame& frame, ConstBytes payload) {
  switch (frame.kind) {
    case FrameKind::kEager:
      return messages.on_eager(frame, payload);
    case FrameKind::kRts:
      return messages.on_rts(frame, payload);
    case FrameKind::kCts:
      return messages.on_cts(frame, payload);
    case FrameKind::kNack:
      return messages.on_nack(frame);
    case FrameKind::kData:
      return messages.on_data(frame, payload);
    case FrameKind::kCredit:
      return messages.on_credit(frame);
    case FrameKind::kPut:
      return one_sided.on_put(frame, payload);
    case FrameKind::kSignal:
      return one_sided.on_signal(frame, payload);
    case FrameKind::kGet:
      return one_sided.on_get(frame, payload);
    case FrameKind::kGetReply:
      return one_sided.on_get_reply(frame, payload);
    case FrameKind::kGetNack:
      return one_sided.on_get_nack(frame);
    case FrameKind::kFlush:
      return one_sided.on_flush(frame, payload);
    case FrameKind::kFlushAck:
      return one_sided.on_flush_ack(frame);
    case FrameKind::kPutSkipped:
      return one_sided.on_put_skipped(frame);
    case FrameKind::kReadDone:
      return messages.on_read_done(frame);
  }
  return "frame of unknown kind";
}

}  // namespace torch::comms::transport
