#include <algorithm>
#include <array>
#include <utility>

#include "transport/protocol/message_protocol.hpp"
#include "transport/protocol/protocol_thresholds.hpp"

// Rendezvous by remote read: the receiver copies the message out of the sender's memory.
namespace torch::comms::transport {
namespace {

constexpr uint64_t kAtOnce = 1u << 20;  // bytes of one peer, before other peers get their turn
// In a broadcast several ranks copy one rank's memory at the same time. They slow each other down
// page by page if they begin at the same page: two copies of 1 MB at the same time took 170 us, one
// alone 68 us. So each rank begins elsewhere, in messages of at least kLeastShared bytes. Measured
// with four ranks on two cores: a broadcast of 1 MB takes 194 us instead of 265 us.
constexpr uint64_t kLeastShared = 256u << 10, kPage = 4096;  // bytes

// The next part of a receive's memory, of at most `most` bytes.
struct ReadTarget {
  std::array<Bytes, PeerConnection::kMaxPieces> pieces;
  size_t count = 0;
  uint64_t bytes = 0;
};

ReadTarget target_of(std::span<const Bytes> pieces, uint64_t offset, uint64_t most) noexcept {
  ReadTarget target;
  for (const auto& piece : pieces) {
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    if (target.bytes == most || target.count == target.pieces.size()) break;
    const auto part = std::min<uint64_t>(piece.size() - offset, most - target.bytes);
    target.pieces[target.count++] = piece.subspan(offset, part);
    target.bytes += part;
    offset = 0;
  }
  return target;
}

}  // namespace

// Returns: the key of the region that peers can map and that contains all of the message; 0 if no
// region does.
uint32_t MessageProtocol::mappable_key(const Request& send) const noexcept {
  const uint32_t key = regions_.mappable_key(send.from_.front());
  return std::all_of(send.from_.begin() + 1, send.from_.end(),
                     [&](const auto& piece) { return regions_.mappable_key(piece) == key; })
             ? key
             : 0;
}

// Returns: the path of the message that comes back; nullopt if no receive is posted for it or no
// such message was timed. Of several messages in flight only one may probe.
std::optional<CopyPathTuner::CopyPath> MessageProtocol::path_to_announce(
    const Request& send) noexcept {
  if (!options_.is_initiator || !send.is_two_way_ || !two_way_tuner_.has_sample(send.size_))
    return std::nullopt;
  return std::exchange(has_announced_path_, true) ? two_way_tuner_.default_path(send.size_)
                                                  : two_way_tuner_.preview(send.size_);
}

// Describes the message for a remote read.
// Returns: false if all slots of the validity words are in use.
bool MessageProtocol::describe_for_read(Request& request, RemoteReadDescriptor& offer) noexcept {
  auto& words = *out_.read_validity_words();
  const auto acquired = words.acquire();
  if (!acquired) return false;
  request.validity_words_ = &words;
  request.slot_ = acquired->slot;
  offer.slot = acquired->slot;
  offer.word = acquired->word;
  offer.region = mappable_key(request);
  offer.path = path_to_announce(request);
  for (const auto& piece : request.from_)
    offer.segments[offer.count++] = {reinterpret_cast<uint64_t>(piece.data()), piece.size()};
  return true;
}

// Returns: whether the message may be read remotely. A message that is reduced out of the ring is
// read once, while it is in the cache: a copy before that would be one too many. Measured as speeds
// relative to Open MPI's: an all_reduce of 64 KB is at 1.16 with that copy and at 1.29 without, a
// reduce_scatter of 16 MB at 4.2 and at 5.4. If the peer's memory is mapped, the message is reduced
// out of the mapping.
bool MessageProtocol::can_read_remotely(const Request& receive) const noexcept {
  return out_.supports_remote_read() && (receive.sink_ == nullptr || out_.maps_peer_memory());
}

bool MessageProtocol::is_remotely_readable(const Request& send) noexcept {
  return send.size_ > 0 && send.from_.size() <= RemoteReadDescriptor::kMaxSegments;
}

// Returns: whether a large message is sent before its receive is posted. Its time is measured from
// here on.
bool MessageProtocol::is_sent_eagerly(Request& request) noexcept {
  if (request.size_ <= options_.eager_bytes) return false;
  request.is_two_way_ = std::exchange(receives_before_, large_receives_) != large_receives_;
  if (request.size_ > max_inline_eager_bytes(request.is_two_way_)) return false;
  // Half of the credit is for small messages. A message that the peer maps is read from the
  // mapping.
  const bool can = request.from_.size() <= PeerConnection::kMaxPieces &&
                   credit_in_use_ + credit_cost(request.size_) <= options_.eager_credit / 2 &&
                   !request.is_cleared_ && out_.supports_remote_read() &&
                   mappable_key(request) == 0;
  if (!can) return false;
  request.began_ = Clock::now();
  return eager_tuner_.choose_eager(request.size_);
}

// Chooses whether a message moves by copy-in/copy-out. It is not timed while other messages move by
// copy-in/copy-out, because its time would include theirs. `offer`: nullptr before kRts has
// arrived.
void MessageProtocol::choose_path(Request& receive, const RemoteReadDescriptor* offer) noexcept {
  receive.is_path_chosen_ = true;
  receive.announced_bytes_ = receive.size_;
  // Where ranks share cores only the copies count; their time does not depend on the other
  // direction.
  receive.is_two_way_ = !options_.is_oversubscribed && is_two_way(receive);
  const bool follows = receive.is_two_way_ && !options_.is_initiator && !is_read_refused_ &&
                       offer != nullptr && offer->path.has_value();
  receive.is_timed_ = !follows && copy_in_out_in_flight_ == 0;
  auto& tuner = tuner_of(receive);
  const auto path = follows             ? *offer->path
                    : receive.is_timed_ ? tuner.choose(receive.size_)
                                        : tuner.default_path(receive.size_);
  if (receive.is_two_way_ && receive.is_timed_) has_announced_path_ = false;
  receive.uses_copy_in_out_ = path == CopyPathTuner::CopyPath::kCopyInOut;
  if (receive.uses_copy_in_out_) ++copy_in_out_in_flight_;
}

// Returns: whether a receive asks for copy-in/copy-out before kRts arrives. Where ranks share cores
// that saves the sender one turn.
bool MessageProtocol::uses_copy_in_out(Request& receive) noexcept {
  // Mapped messages are read from the mapping.
  if (!options_.is_oversubscribed || receive.size_ <= max_inline_eager_bytes(true) ||
      receive.sink_ != nullptr || out_.maps_peer_memory())
    return false;
  choose_path(receive, nullptr);
  return receive.uses_copy_in_out_;
}

// Starts a remote read.
// Returns: false if the message moves by copy-in/copy-out instead.
bool MessageProtocol::begin(RemoteRead& fetch) {
  auto& request = *fetch.request;
  fetch.is_started = true;
  if (fetch.is_mapped) return true;
  if (!request.is_path_chosen_ && request.size_ > max_inline_eager_bytes(is_two_way(request)))
    choose_path(request, &fetch.descriptor);
  if (!request.is_path_chosen_ || request.is_timed_) request.began_ = Clock::now();
  return !request.uses_copy_in_out_;
}

// Gives the tuner the time of a message that has arrived, or that could not be read (`refused`).
void MessageProtocol::record_time(Request& request, CopyPathTuner::CopyPath path,
                                  bool refused) noexcept {
  const auto began = std::exchange(request.began_, {});
  if (!is_timed(began)) return;
  // Where ranks share cores a waiting rank yields its core to other ranks: the cost of a path is
  // the time of its copies there.
  const int copies = path == CopyPathTuner::CopyPath::kRemoteRead ? 1 : 2;
  const auto time = refused                      ? std::chrono::nanoseconds::max()
                    : options_.is_oversubscribed ? copies * request.copied_
                                                 : Clock::now() - began;
  if (request.is_path_chosen_)
    tuner_of(request).add_sample(path, request.announced_bytes_, time);
  else if (!refused)
    eager_tuner_.on_local_read(request.size_, time);
}

// Records that a message no longer moves by copy-in/copy-out, if choose_path() had chosen that.
void MessageProtocol::end_copy_in_out(Request& request) noexcept {
  if (std::exchange(request.uses_copy_in_out_, false)) --copy_in_out_in_flight_;
}

bool MessageProtocol::send_rts(Request& request) {
  auto frame = frame_of(FrameKind::kRts, request);
  frame.value = request.size_;
  RemoteReadDescriptor offered;
  if (!out_.supports_remote_read() || request.is_cleared_ || !is_remotely_readable(request) ||
      !describe_for_read(request, offered)) {
    request.is_announced_ = out_.try_send(frame, {}, &request.frames_in_use_);
    return request.is_announced_;
  }
  const RemoteReadDescriptor::Payload payload(offered);
  const auto bytes = payload.bytes();
  frame.bytes = static_cast<uint32_t>(bytes.size());
  request.is_announced_ = out_.try_send(frame, {&bytes, 1}, &request.frames_in_use_);
  // The peer has not seen it.
  if (!request.is_announced_) request.end_remote_read(/*keeps_word=*/true);
  return request.is_announced_;
}

// Returns: the first byte to copy; the bytes before it are copied last.
uint64_t MessageProtocol::read_offset(const Request& request) const noexcept {
  if (request.sink_ != nullptr || request.size_ < kLeastShared) return 0;
  return (request.size_ >> 16) * options_.copy_start_fraction / kPage * kPage;
}

PeerConnection::RemoteReadStatus MessageProtocol::read_some(const RemoteRead& fetch) {
  auto& request = *fetch.request;
  if (request.sink_ != nullptr) return consume_some(fetch);
  const uint64_t left = request.size_ - request.moved_;
  const uint64_t at = (read_offset(request) + request.moved_) % request.size_;
  const uint64_t most = std::min({left, kAtOnce, request.size_ - at});
  const auto target = target_of(request.into_, at, most);
  const CopyTimer timer(request);
  const auto status = out_.remote_read(fetch.descriptor, at, {target.pieces.data(), target.count},
                                       request.is_non_temporal_);
  timer.stop();
  if (status == PeerConnection::RemoteReadStatus::kDone) request.moved_ += target.bytes;
  return status;
}

// Consumes a part of the message out of the peer's mapped memory.
PeerConnection::RemoteReadStatus MessageProtocol::consume_some(const RemoteRead& fetch) {
  auto& request = *fetch.request;
  const auto part = out_.map_view(fetch.descriptor, request.moved_, kAtOnce);
  auto status = part.empty() ? PeerConnection::RemoteReadStatus::kRefused
                             : out_.remote_read(fetch.descriptor, 0, {});
  if (status != PeerConnection::RemoteReadStatus::kDone) return status;
  request.sink_->consume(request.moved_, part);
  status = out_.remote_read(fetch.descriptor, 0, {});
  // kRefused would make the sender send this part, and the sink would consume it twice.
  if (status != PeerConnection::RemoteReadStatus::kDone)
    return PeerConnection::RemoteReadStatus::kWithdrawn;
  request.moved_ += part.size();
  return status;
}

bool MessageProtocol::progress_reads() {
  if (reads_.empty()) return false;
  for (uint64_t done = 0; !reads_.empty() && done < kAtOnce;) {
    auto& request = *reads_.front().request;
    if (!reads_.front().is_started && !begin(reads_.front())) {
      reads_.erase(reads_.begin());
      send_cts(request);
      continue;
    }
    const uint64_t before = request.moved_;
    const auto status = read_some(reads_.front());
    done += request.moved_ - before;
    if (status == PeerConnection::RemoteReadStatus::kDone && request.moved_ < request.size_)
      continue;
    reads_.erase(reads_.begin());
    if (status == PeerConnection::RemoteReadStatus::kWithdrawn)
      continue;  // the sender announces the outcome by other frames
    if (status == PeerConnection::RemoteReadStatus::kRefused) {
      if (read_offset(request) > 0) request.moved_ = 0;  // its first bytes are missing
      record_time(request, CopyPathTuner::CopyPath::kRemoteRead, true);
      is_read_refused_ = true;
      const CtsFrame cts{request.moved_};
      send_cts(request, request.moved_ > 0 ? std::as_bytes(std::span(&cts, 1)) : ConstBytes{});
      continue;
    }
    record_time(request, CopyPathTuner::CopyPath::kRemoteRead);
    out_.post(frame_of(FrameKind::kReadDone, request));
    auto& in = *receives(request.stream_);
    request.finish();
    in.remove(request.sequence_);
  }
  return true;
}

const char* MessageProtocol::on_read_done(const Frame& frame) {
  auto* stream = sends(frame.stream);
  if (stream == nullptr) return nullptr;
  const auto open = stream->open.find(frame.sequence);
  if (open == stream->open.end() || !open->second->is_announced_ ||
      !open->second->is_remotely_readable())
    return "the peer confirmed a remote read of a message without descriptor";
  auto& request = *open->second;
  stream->open.erase(open);
  request.moved_ = request.size_;
  if (const auto began = std::exchange(request.began_, {}); is_timed(began))
    eager_tuner_.on_peer_read(request.size_, Clock::now() - began);
  request.end_remote_read(/*keeps_word=*/true);
  request.finish();
  return nullptr;
}

}  // namespace torch::comms::transport
