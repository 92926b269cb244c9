#include "transport/peer.hpp"

#include <new>

namespace torch::comms::transport {

PeerState Peer::state() const noexcept {
  if (failure_) return PeerState::kFailed;
  return channel_ ? PeerState::kReady : PeerState::kConnecting;
}

void Peer::open(std::unique_ptr<Channel> channel) {
  channel_ = std::move(channel);
  ordinals_.assign(channel_->lanes(), 0);
  out_.attach(channel_.get());
}

bool Peer::pump() {
  bool moved = false;
  if (!channel_ || !out_.send_posted(moved)) return moved;
  while (!out_.ready.empty()) {
    auto& request = *out_.ready.front();
    const bool message = request.kind_ == Request::Kind::kSend;
    if (!(message ? messages.push(request, moved) : one_sided.push(request, moved))) break;
    out_.ready.pop_front();
  }
  return moved;
}

bool Peer::try_receive(uint32_t stream, const Landing& landing, uint32_t tag) {
  if (messages.take_kept(stream, landing, tag)) return true;
  Frame frame;
  ConstBytes payload;
  if (!channel_ || !channel_->front(frame, payload)) return false;
  // Anything else is for progress().
  const bool ours = frame.kind == FrameKind::kEager && frame.stream == stream && frame.key == tag &&
                    frame.bytes == landing.bytes && frame.lane == 0 &&
                    frame.ordinal == ordinals_[0] && messages.is_next(frame);
  if (!ours) return false;
  landing.take(payload);
  ++ordinals_[0];
  channel_->pop_front();
  messages.took(frame);
  return true;
}

bool Peer::shows_next(uint32_t stream) noexcept {
  Frame frame;
  ConstBytes payload;
  return channel_ && channel_->front(frame, payload) && frame.kind == FrameKind::kEager &&
         frame.stream == stream && messages.is_next(frame);
}

bool Peer::progress() noexcept {
  if (!channel_) return false;
  try {
    bool moved = channel_->push();
    const auto received = channel_->receive(*this);
    moved |= received == Channel::Received::kSome;
    if (!violation_.empty()) {
      fail(Errc::kPeerFailed, "broke the protocol: " + violation_);
      return true;
    }
    moved |= messages.fetch();
    if (out_.waiting()) moved |= pump();
    moved |= out_.finish_freed();
    one_sided.finish_replies();
    if (received != Channel::Received::kBroken) return moved;
    fail(channel_->code(), channel_->broken());
  } catch (const std::bad_alloc&) {
    fail(Errc::kResourceExhausted, "no memory left for its messages");
  }
  return true;
}

void Peer::fail(Errc code, const std::string& why) noexcept {
  if (failure_) return;
  failure_ = PeerFailure{code, "rank " + std::to_string(rank_) + ": " + why};
  channel_.reset();  // gives back borrowed memory
  out_.fail(code);
  messages.fail(code);
  one_sided.fail(code);
}

void Peer::withdraw(ConstBytes range) {
  if (!channel_) return;
  channel_->withdraw(range);
  one_sided.withdraw(range);
}

bool Peer::prepare_sleep() noexcept {
  return !channel_ || (!messages.fetching() && channel_->prepare_sleep(out_.waiting()));
}

Bytes Peer::place(const Frame& frame) noexcept {
  switch (frame.kind) {
    case FrameKind::kData:
      return messages.place_data(frame);
    case FrameKind::kPut:
      return one_sided.place_put(frame);
    case FrameKind::kGot:
      return one_sided.place_got(frame);
    default:
      return {};
  }
}

bool Peer::deliver(const Frame& frame, ConstBytes payload) noexcept {
  if (!violation_.empty()) return false;
  try {
    const char* wrong = wrong_with(frame, channel_->max_payload(), channel_->lanes());
    if (wrong == nullptr && frame.ordinal != ordinals_[frame.lane])
      wrong = frame.ordinal < ordinals_[frame.lane] ? "a frame came twice" : "a frame was lost";
    if (wrong == nullptr) {
      ++ordinals_[frame.lane];
      wrong = accept(frame, payload);
    }
    if (wrong != nullptr) violation_ = wrong;
  } catch (const std::bad_alloc&) {
    violation_ = "no memory left for its message";
  }
  return violation_.empty() && !messages.ends_turn(frame);
}

const char* Peer::accept(const Frame& frame, ConstBytes payload) {
  switch (frame.kind) {
    case FrameKind::kEager:
      return messages.on_eager(frame, payload);
    case FrameKind::kStart:
      return messages.on_start(frame, payload);
    case FrameKind::kGrant:
      return messages.on_grant(frame, payload);
    case FrameKind::kRefuse:
      return messages.on_refuse(frame);
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
    case FrameKind::kGot:
      return one_sided.on_got(frame, payload);
    case FrameKind::kGetRefused:
      return one_sided.on_get_refused(frame);
    case FrameKind::kFlush:
      return one_sided.on_flush(frame, payload);
    case FrameKind::kFlushed:
      return one_sided.on_flushed(frame);
    case FrameKind::kSkipped:
      return one_sided.on_skipped(frame);
    case FrameKind::kTaken:
      return messages.on_taken(frame);
  }
  return "a frame of unknown kind";
}

}  // namespace torch::comms::transport
