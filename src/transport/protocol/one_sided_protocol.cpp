#include "transport/protocol/one_sided_protocol.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/protocol/message_protocol.hpp"

namespace torch::comms::transport {
namespace {

constexpr size_t kMaxDeferred = 1u << 20, kMaxReplies = 1u << 12;

template <class T>
T read(ConstBytes payload) noexcept {
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

template <class T>
ConstBytes bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span(&value, 1));
}

Frame frame_to(FrameKind kind, const MemoryHandle& to, uint64_t offset) noexcept {
  Frame frame;
  frame.kind = kind;
  frame.stream = to.region;
  frame.key = to.key;
  frame.value = offset;
  return frame;
}

Frame numbered(FrameKind kind, uint32_t sequence, uint64_t value = 0) noexcept {
  Frame frame;
  frame.kind = kind;
  frame.sequence = sequence;
  frame.value = value;
  return frame;
}

}  // namespace

void OneSidedProtocol::put(Request& request) {
  request.sequence_ = put_epoch_;
  put_bytes_ += request.size_;
  ++sent_;
  out_.ready.push_back(&request);
}

void OneSidedProtocol::get(Request& request) {
  request.sequence_ = next_++;
  gets_.emplace(request.sequence_, &request);
  Frame frame = numbered(FrameKind::kGet, request.sequence_, request.offset_);
  frame.stream = request.stream_;
  frame.key = request.key_;
  out_.post(frame, bytes_of(GetFrame{request.size_}));
}

uint64_t OneSidedProtocol::close_puts() noexcept {
  ++put_epoch_;
  return std::exchange(put_bytes_, 0);
}

void OneSidedProtocol::signal(const MemoryHandle& to, uint64_t offset, uint64_t amount,
                              CounterOp op) {
  ++sent_;
  const SignalFrame signal{amount, close_puts(), static_cast<uint8_t>(op), {}};
  out_.post(frame_to(FrameKind::kSignal, to, offset), bytes_of(signal));
}

void OneSidedProtocol::flush(Request& request) {
  request.sequence_ = next_++;
  request.offset_ = sent_;
  flushes_.emplace(request.sequence_, &request);
  out_.post(numbered(FrameKind::kFlush, request.sequence_), bytes_of(FlushFrame{close_puts()}));
}

void OneSidedProtocol::cancel(Request& request, Errc error) {
  if (request.kind_ == Request::Kind::kFlush) {
    flushes_[request.sequence_] = nullptr;
    return request.finish(error);
  }
  TC_CHECK(request.kind_ == Request::Kind::kPut);
  const uint64_t unsent = request.size_ - request.moved_;
  out_.cancel(request, error);
  if (unsent > 0) out_.post(numbered(FrameKind::kPutSkipped, request.sequence_, unsent));
}

bool OneSidedProtocol::push(Request& request, bool& moved) {
  const bool reply = request.kind_ == Request::Kind::kReply;
  Frame head = numbered(reply ? FrameKind::kGetReply : FrameKind::kPut, request.sequence_);
  head.stream = request.stream_;
  head.key = request.key_;
  if (!out_.stream(request, head, request.offset_, moved)) return false;
  out_.finish_when_free(request);
  return true;
}

void OneSidedProtocol::finish_replies() noexcept {
  replies_.remove_if([](const Request& reply) { return reply.is_done(); });
}

void OneSidedProtocol::cancel_reads(ConstBytes range) {
  for (auto& reply : replies_) {
    if (reply.is_done() || reply.one_from_.data() < range.data() ||
        reply.one_from_.data() >= range.data() + range.size())
      continue;
    if (std::erase(out_.ready, &reply) == 0) continue;  // the connection has made a copy
    out_.post(numbered(FrameKind::kGetNack, reply.sequence_));
    out_.finish_when_free(reply);
  }
  finish_replies();
}

Bytes OneSidedProtocol::put_target(const Frame& frame) noexcept {
  auto* at = regions_.find(frame.stream, frame.key, frame.value, frame.bytes);
  return at == nullptr ? Bytes{} : Bytes(at, frame.bytes);
}

const char* OneSidedProtocol::on_put(const Frame& frame, ConstBytes payload) {
  auto* at = regions_.find(frame.stream, frame.key, frame.value, frame.bytes);
  if (at == nullptr)
    ++refused_;
  else if (at != payload.data())
    std::memcpy(at, payload.data(), payload.size());
  return on_put_arrived(frame.sequence, frame.bytes);
}

const char* OneSidedProtocol::defer(const DeferredSignal& deferred) {
  if (deferred_.size() >= kMaxDeferred) return "too many signals wait for their puts";
  deferred_.push_back(deferred);
  return release();
}

// Adds bytes of puts that precede the peer's signal or flush `number`.
const char* OneSidedProtocol::on_put_arrived(uint32_t number, uint64_t size_bytes) {
  const uint32_t ahead = number - applied_;
  if (ahead > kMaxDeferred) return "a put arrived after its signal, or too long before it";
  if (arrived_.size() <= ahead) arrived_.resize(ahead + 1);
  arrived_[ahead] += size_bytes;
  return release();
}

const char* OneSidedProtocol::release() {
  while (!deferred_.empty()) {
    const uint64_t expected = deferred_.front().signal.after;
    const uint64_t arrived = arrived_.empty() ? 0 : arrived_.front();
    if (arrived > expected) return "puts have more bytes than their signal announced";
    if (arrived < expected) return nullptr;
    apply(deferred_.front());
    deferred_.pop_front();
    ++applied_;
    if (!arrived_.empty()) arrived_.pop_front();
  }
  return nullptr;
}

void OneSidedProtocol::apply(const DeferredSignal& deferred) {
  const auto& frame = deferred.frame;
  if (frame.kind == FrameKind::kFlush) {
    out_.post(numbered(FrameKind::kFlushAck, frame.sequence, refused_));
    refused_ = 0;
    return;
  }
  auto* at = regions_.find(frame.stream, frame.key, frame.value, sizeof(uint64_t));
  if (at == nullptr || reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0)
    ++refused_;
  else
    update_counter(at, deferred.signal.amount, static_cast<CounterOp>(deferred.signal.op));
}

const char* OneSidedProtocol::on_signal(const Frame& frame, ConstBytes payload) {
  const auto signal = read<SignalFrame>(payload);
  if (signal.op > static_cast<uint8_t>(CounterOp::kStore))
    return "signal with an unknown counter operation";
  return defer({frame, signal});
}

const char* OneSidedProtocol::on_flush(const Frame& frame, ConstBytes payload) {
  return defer({frame, {0, read<FlushFrame>(payload).after, 0, {}}});
}

const char* OneSidedProtocol::on_flush_ack(const Frame& frame) {
  const auto found = flushes_.extract(frame.sequence);
  if (!found) return "answer to an unknown flush";
  if (found.mapped() == nullptr) return nullptr;
  flushed_ = std::max(flushed_, found.mapped()->offset_);
  if (frame.value > 0)
    found.mapped()->finish(Errc::kMismatch);
  else
    found.mapped()->finish();
  return nullptr;
}

const char* OneSidedProtocol::on_put_skipped(const Frame& frame) {
  return on_put_arrived(frame.sequence, frame.value);
}

const char* OneSidedProtocol::on_get(const Frame& frame, ConstBytes payload) {
  const auto size = read<GetFrame>(payload).bytes;
  auto* at = regions_.find(frame.stream, frame.key, frame.value, size);
  if (replies_.size() >= kMaxReplies) return "too many gets in flight";
  if (at == nullptr) {
    out_.post(numbered(FrameKind::kGetNack, frame.sequence));
    return nullptr;
  }
  auto& reply = replies_.emplace_back();
  reply.start(Request::Kind::kReply, -1);
  reply.sequence_ = frame.sequence;
  reply.size_ = size;
  reply.one_from_ = {at, size};
  reply.from_ = {&reply.one_from_, 1};
  out_.ready.push_back(&reply);
  return nullptr;
}

Bytes OneSidedProtocol::get_reply_target(const Frame& frame) noexcept {
  const auto found = gets_.find(frame.sequence);
  if (found == gets_.end()) return {};
  const auto& request = *found->second;
  if (frame.value > request.size_ || frame.bytes > request.size_ - frame.value) return {};
  return request.one_into_.subspan(frame.value, frame.bytes);
}

const char* OneSidedProtocol::on_get_reply(const Frame& frame, ConstBytes payload) {
  const auto target = get_reply_target(frame);
  if (target.empty()) return "answer to an unknown get";
  auto& request = *gets_[frame.sequence];
  if (request.moved_ + frame.bytes > request.size_) return "answer to a get arrived twice";
  if (target.data() != payload.data()) std::memcpy(target.data(), payload.data(), payload.size());
  request.moved_ += frame.bytes;
  if (request.moved_ == request.size_) {
    gets_.erase(frame.sequence);
    request.finish();
  }
  return nullptr;
}

const char* OneSidedProtocol::on_get_nack(const Frame& frame) {
  const auto found = gets_.extract(frame.sequence);
  if (!found) return "answer to an unknown get";
  found.mapped()->finish(Errc::kMismatch);
  return nullptr;
}

void OneSidedProtocol::fail(Errc error) noexcept {
  for (auto& [sequence, request] : gets_) request->finish(error);
  for (auto& [sequence, request] : flushes_)
    if (request != nullptr) request->finish(error);
  gets_.clear();
  flushes_.clear();
  deferred_.clear();
  replies_.clear();
}

}  // namespace torch::comms::transport
