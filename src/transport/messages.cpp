#include "transport/messages.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/streaming_copy.hpp"

namespace torch::comms::transport {
namespace {

// Grants, announcements and the like that may wait for their partner, of one peer.
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

Request* Messages::Receives::find(uint32_t number) const noexcept {
  const uint32_t index = number - first;
  return index < posted.size() ? posted[index] : nullptr;
}

void Messages::Receives::remove(uint32_t number) noexcept {
  posted[number - first] = nullptr;
  while (!posted.empty() && posted[0] == nullptr) {
    posted.pop_front();
    ++first;
  }
}

Messages::Sends* Messages::sends(uint32_t stream) {
  if (last_sends_.second != nullptr && last_sends_.first == stream) return last_sends_.second;
  const auto found = sends_.find(stream);
  if (found == sends_.end() && closed_.contains(stream)) return nullptr;
  last_sends_ = {stream, found != sends_.end() ? &found->second : &sends_[stream]};
  return last_sends_.second;
}

Messages::Receives* Messages::receives(uint32_t stream) {
  if (last_receives_.second != nullptr && last_receives_.first == stream)
    return last_receives_.second;
  const auto found = receives_.find(stream);
  if (found == receives_.end() && closed_.contains(stream)) return nullptr;
  last_receives_ = {stream, found != receives_.end() ? &found->second : &receives_[stream]};
  return last_receives_.second;
}

bool Messages::has_credit(uint64_t bytes, uint64_t most, size_t pieces) const noexcept {
  return bytes <= most && pieces <= Channel::kMaxPieces &&
         eager_out_ + cost(bytes) <= limits_.eager_credit;
}

bool Messages::try_eager(Request& request) {
  const auto frame = frame_of(FrameKind::kEager, request);
  if (!push_eager(frame, request.size_, request.from_, &request.borrowed_)) return false;
  request.moved_ = request.size_;
  return true;
}

// As it is larger, how long that takes is looked at.
bool Messages::try_timed(Request& request) {
  const auto began = std::exchange(request.began_, {});
  if (!try_eager(request)) return false;
  at_once_.left(request.size_, Clock::now() - began);
  return true;
}

bool Messages::push_eager(Frame frame, uint64_t size, std::span<const ConstBytes> pieces,
                          uint32_t* borrowed) {
  frame.bytes = static_cast<uint32_t>(size);
  // Answers to the peer's messages that wait go first: it has them when it hears what came later.
  if (out_.holds_back() || !out_.try_send(frame, pieces, borrowed)) return false;
  eager_out_ += cost(size);
  return true;
}

Frame Messages::frame_of(FrameKind kind, const Request& request) noexcept {
  Frame frame;
  frame.kind = kind;
  frame.stream = request.stream_;
  frame.sequence = request.sequence_;
  frame.key = request.key_;
  return frame;
}

// The receive is there. `offset_` of a message is the room it has there.
void Messages::heed(Request& request, const Grant& grant) noexcept {
  request.granted_ = true;
  request.offset_ = grant.capacity;
  request.misfits_ = grant.tag != request.key_ || grant.capacity < request.size_;
}

void Messages::send(Request& request) {
  auto* stream = sends(request.stream_);
  if (stream == nullptr) return request.finish(Errc::kFinalized);
  auto& out = *stream;
  request.sequence_ = out.next++;
  if (request.size_ > limits_.eager_bytes) ++large_sends_;
  if (!out.grants.empty()) {
    if (const auto early = out.grants.extract(request.sequence_)) {
      heed(request, early.mapped());
      --open_early_;
    }
  }
  // It may overtake what waits: messages are matched by their numbers.
  if ((has_credit(request.size_, limits_.eager_bytes, request.from_.size()) &&
       try_eager(request)) ||
      (leaves_at_once(request) && try_timed(request))) {
    out_.finish_when_free(request);
    return;
  }
  out.open.emplace(request.sequence_, &request);
  out_.ready.push_back(&request);
}

bool Messages::push(Request& request, bool& moved) {
  auto& open = sends(request.stream_)->open;
  if (!request.started_ && has_credit(request.size_, limits_.eager_bytes, request.from_.size())) {
    if (!try_eager(request)) return false;
  } else {
    if (!request.started_) {
      if (!announce(request)) return false;
      moved = true;
      if (!request.granted_) return true;  // on_grant() brings it back
    }
    if (request.misfits_) {  // the receiver learnt it from the announcement
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

void Messages::grant(Request& request, ConstBytes payload) {
  request.granted_ = true;
  auto frame = frame_of(FrameKind::kGrant, request);
  frame.value = request.size_;
  out_.post(frame, payload);
}

void Messages::receive(Request& request) {
  auto* stream = receives(request.stream_);
  if (stream == nullptr) return request.finish(Errc::kFinalized);
  auto& in = *stream;
  request.sequence_ = in.next++;
  request.sends_before_ = large_sends_;
  if (request.size_ > limits_.eager_bytes) ++large_receives_;
  if (in.posted.empty()) in.first = request.sequence_;
  in.posted.push_back(&request);
  if (!in.early.empty()) {
    if (const auto found = in.early.find(request.sequence_); found != in.early.end()) {
      auto node = take_early(in, found);
      auto& early = node.mapped();
      if (!early.whole) {
        start(in, request, early.length, early.tag, early.data);
        return;
      }
      take(request, early.tag, early.data);
      in.remove(request.sequence_);
      keep_spare(std::move(node));
      return;
    }
  }
  if (request.size_ > limits_.eager_bytes && (!may_fetch(request) || goes_through_channel(request)))
    grant(request);
}

// What came before its receive, which is there now.
Messages::EarlyNode Messages::take_early(Receives& in, EarlyPlace place) {
  --open_early_;
  if (place->second.whole) early_bytes_ -= cost(place->second.data.size());
  return in.early.extract(place);
}

// Where early messages were, for the next ones.
void Messages::keep_spare(EarlyNode node) {
  const auto bytes = node.mapped().data.capacity();
  if (spare_.size() == kMostSpare || bytes > kMostSpareBytes - spare_bytes_) return;
  spare_bytes_ += bytes;
  spare_.push_back(std::move(node));
}

const Messages::Early* Messages::next_early(uint32_t stream) const noexcept {
  const auto in = receives_.find(stream);
  if (in == receives_.end()) return nullptr;
  const auto early = in->second.early.find(in->second.next);
  return early == in->second.early.end() ? nullptr : &early->second;
}

bool Messages::is_here(uint32_t stream) const noexcept {
  const auto* early = next_early(stream);
  return early != nullptr && early->whole;
}

// The end of an eager message.
void Messages::take(Request& request, uint32_t tag, ConstBytes whole) {
  return_credit(cost(whole.size()));
  leave_channel(request);
  if (whole.size() > request.size_ || tag != request.key_) {
    request.moved_ = whole.size();
    request.key_ = tag;
    request.finish(Errc::kMismatch);
    return;
  }
  if (request.consumer_ != nullptr) {
    if (!whole.empty()) request.consumer_->consume(0, whole);
  } else {
    scatter(request.into_, 0, whole);
  }
  request.moved_ = whole.size();
  request.finish();
}

// Until its receive is there. False: there is one already.
bool Messages::keep_early(Receives& in, const Frame& frame, ConstBytes payload) {
  if (spare_.empty()) {
    Early early{payload.size(), frame.key, true, {payload.begin(), payload.end()}};
    return in.early.emplace(frame.sequence, std::move(early)).second;
  }
  EarlyNode node = std::move(spare_.back());
  spare_.pop_back();
  spare_bytes_ -= node.mapped().data.capacity();
  node.key() = frame.sequence;
  auto& early = node.mapped();
  early.length = payload.size();
  early.tag = frame.key;
  early.whole = true;
  early.data.assign(payload.begin(), payload.end());
  return in.early.insert(std::move(node)).inserted;
}

const char* Messages::on_eager(const Frame& frame, ConstBytes payload) {
  auto* stream = receives(frame.stream);
  if (stream == nullptr) {
    return_credit(cost(payload.size()));
    return nullptr;
  }
  auto& in = *stream;
  if (auto* request = in.find(frame.sequence)) {
    if (request->started_ || request->moved_ > 0) return "a message came twice";
    take(*request, frame.key, payload);
    in.remove(frame.sequence);
    return nullptr;
  }
  if (!in.comes_later(frame.sequence)) return "a message came twice";
  if (early_bytes_ + cost(payload.size()) > limits_.eager_credit || open_early_ >= kMaxEarly)
    return "more small messages than its credit";
  if (!keep_early(in, frame, payload)) return "a message came twice";
  early_bytes_ += cost(payload.size());
  ++open_early_;
  return nullptr;
}

const char* Messages::start(Receives& in, Request& request, uint64_t length, uint32_t tag,
                            ConstBytes offer) {
  if (request.started_) return "a message was announced twice";
  if (length < request.moved_) return "more of a message than its length";
  request.started_ = true;
  if (length > request.size_ || tag != request.key_) {
    if (!request.granted_) {
      auto frame = frame_of(FrameKind::kRefuse, request);
      frame.value = request.size_;
      out_.post(frame);
    }
    leave_channel(request);
    request.moved_ = length;
    request.key_ = tag;
    request.finish(Errc::kMismatch);
    in.remove(request.sequence_);
    return nullptr;
  }
  if (request.through_channel_ && request.is_timed_) request.began_ = Clock::now();
  if (!request.granted_ && !offer.empty() && may_fetch(request)) {
    const auto read = Offer::read(offer, length);
    if (!read) return "an offer that is not of its message";
    const bool views = !out_.view(*read, 0, 1).empty();
    if (request.consumer_ == nullptr || views) {
      request.size_ = length;
      fetches_.push_back({.request = &request, .offer = *read, .views = views});
      return nullptr;
    }
  }
  if (!request.granted_) grant(request);
  request.size_ = length;
  if (request.moved_ == length) {
    leave_channel(request);
    request.finish();
    in.remove(request.sequence_);
  }
  return nullptr;
}

const char* Messages::on_start(const Frame& frame, ConstBytes payload) {
  auto* stream = receives(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& in = *stream;
  if (auto* request = in.find(frame.sequence))
    return start(in, *request, frame.value, frame.key, payload);
  if (!in.comes_later(frame.sequence)) return "a message was announced twice";
  if (open_early_ >= kMaxEarly) return "too many messages that nobody receives";
  Early early{frame.value, frame.key, false, {payload.begin(), payload.end()}};
  if (!in.early.emplace(frame.sequence, std::move(early)).second)
    return "a message was announced twice";
  ++open_early_;
  return nullptr;
}

const char* Messages::on_grant(const Frame& frame, ConstBytes payload) {
  auto* stream = sends(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& out = *stream;
  const auto open = out.open.find(frame.sequence);
  if (open == out.open.end()) {
    if (int32_t(frame.sequence - out.next) < 0) return nullptr;  // it left as a small one
    if (open_early_ >= kMaxEarly) return "too many receives that nobody sends to";
    if (!out.grants.emplace(frame.sequence, Grant{frame.value, frame.key}).second)
      return "a grant came twice";
    ++open_early_;
    return nullptr;
  }
  auto& request = *open->second;
  if (request.granted_) return "a grant came twice";
  if (!payload.empty()) {
    GrantFrame grant;
    std::memcpy(&grant, payload.data(), sizeof grant);
    if (!request.started_ || grant.from >= request.size_) return "took more than was offered";
    Outbox::skip(request, grant.from);
  }
  request.end_offer();
  if (is_timed(std::exchange(request.began_, {}))) at_once_.was_refused(request.size_);
  heed(request, {frame.value, frame.key});
  if (!request.started_) return nullptr;  // it is still in `ready`
  out_.ready.push_back(&request);
  return nullptr;
}

const char* Messages::on_refuse(const Frame& frame) {
  auto* stream = sends(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& out = *stream;
  const auto open = out.open.find(frame.sequence);
  if (open == out.open.end() || !open->second->started_ || open->second->granted_)
    return "refused what was not offered";
  open->second->finish(Errc::kMismatch);
  out.open.erase(open);
  return nullptr;
}

Bytes Messages::place_data(const Frame& frame) {
  const auto* in = receives(frame.stream);
  const auto* request = in == nullptr ? nullptr : in->find(frame.sequence);
  if (request == nullptr || !request->granted_ || request->consumer_ != nullptr) return {};
  if (frame.value > request->size_ || frame.bytes > request->size_ - frame.value) return {};
  return contiguous(request->into_, frame.value, frame.bytes);
}

const char* Messages::on_data(const Frame& frame, ConstBytes payload) {
  auto* stream = receives(frame.stream);
  if (stream == nullptr) return nullptr;
  auto& in = *stream;
  auto* request = in.find(frame.sequence);
  if (request == nullptr || !request->granted_) return "data of a message without a grant";
  if (frame.value > request->size_ || frame.bytes > request->size_ - frame.value ||
      request->moved_ + frame.bytes > request->size_)
    return "data outside of its message";
  const Stopwatch watch(*request);
  if (request->consumer_ != nullptr)
    request->consumer_->consume(frame.value, payload);
  else if (contiguous(request->into_, frame.value, frame.bytes).data() != payload.data())
    scatter(request->into_, frame.value, payload, request->passes_caches_);
  watch.stop();
  request->moved_ += frame.bytes;
  if (request->started_ && request->moved_ == request->size_) {
    end_time(*request, CopyChoice::Way::kChannel);
    leave_channel(*request);
    request->finish();
    in.remove(frame.sequence);
  }
  return nullptr;
}

const char* Messages::on_credit(const Frame& frame) {
  if (frame.value > eager_out_) return "more credit than was taken";
  eager_out_ -= frame.value;
  return nullptr;
}

void Messages::return_credit(uint64_t bytes) {
  taken_ += bytes;
  if (taken_ < limits_.eager_credit / 4) return;
  Frame frame;
  frame.kind = FrameKind::kCredit;
  frame.value = taken_;
  taken_ = 0;
  out_.post(frame);
}

// Nothing writes into the memory of `receive` any more.
void Messages::forget(Request& receive) {
  leave_channel(receive);
  for (const auto& piece : receive.into_) out_.withdraw(piece);
  std::erase_if(fetches_, [&](const Fetch& fetch) { return fetch.request == &receive; });
}

void Messages::end(Request& request, Errc error) {
  if (request.kind_ == Request::Kind::kSend) {
    sends(request.stream_)->open.erase(request.sequence_);
    return out_.end(request, error);
  }
  forget(request);
  receives(request.stream_)->remove(request.sequence_);
  request.finish(error);
}

void Messages::close(uint32_t first, uint32_t last, Errc error) {
  const auto inside = [&](const auto& entry) {
    return entry.first >= first && entry.first <= last;
  };
  out_.end_sends(first, last, error);
  std::erase_if(sends_, [&](auto& entry) {
    if (!inside(entry)) return false;
    for (auto& [sequence, request] : entry.second.open)  // what waits for its grant
      if (!request->done()) request->finish(error);
    open_early_ -= entry.second.grants.size();
    return true;
  });
  std::erase_if(receives_, [&](auto& entry) {
    if (!inside(entry)) return false;
    for (auto* request : entry.second.posted.all()) {
      if (request == nullptr) continue;
      forget(*request);
      request->finish(error);
    }
    for (auto& [sequence, early] : entry.second.early) {
      --open_early_;
      if (!early.whole) continue;
      early_bytes_ -= cost(early.data.size());
      return_credit(cost(early.data.size()));
    }
    return true;
  });
  last_sends_ = {};
  last_receives_ = {};
}

void Messages::fail(Errc error) noexcept {
  fetches_.clear();
  through_channel_ = 0;
  for (auto& [stream, out] : sends_) {
    for (auto& [sequence, request] : out.open) request->finish(error);
    out.open.clear();
  }
  for (auto& [stream, in] : receives_) {
    for (auto* request : in.posted.all())
      if (request != nullptr) request->finish(error);
    in.posted.clear();
    open_early_ -= std::erase_if(in.early, [](const auto& early) { return !early.second.whole; });
  }
}

}  // namespace torch::comms::transport
