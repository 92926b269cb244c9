#include <algorithm>
#include <array>
#include <utility>

#include "transport/messages.hpp"
#include "transport/sizes.hpp"

// Messages that their receiver copies out of the sender's memory.
namespace torch::comms::transport {
namespace {

constexpr uint64_t kAtOnce = 1u << 20;  // of one peer, before others get their turn
// Several ranks that copy one rank's memory, as in a broadcast, are in each other's way page by
// page where they begin at the same one: two copies of 1 MB at once took 170 us, one alone 68. So
// each begins elsewhere. Measured with four ranks on two cores: a broadcast of 1 MB takes 194 us
// instead of 265.
constexpr uint64_t kLeastShared = 256u << 10, kPage = 4096;  // bytes

// The next part of what a receive writes to, of at most `most` bytes.
struct Target {
  std::array<Bytes, Channel::kMaxPieces> pieces;
  size_t count = 0;
  uint64_t bytes = 0;
};

Target target_of(std::span<const Bytes> pieces, uint64_t offset, uint64_t most) noexcept {
  Target target;
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

// The key of the region that peers can map and that holds all of the message; 0: there is none.
uint32_t Messages::mappable(const Request& send) const noexcept {
  const uint32_t key = regions_.mappable(send.from_.front());
  return std::all_of(send.from_.begin() + 1, send.from_.end(),
                     [&](const auto& piece) { return regions_.mappable(piece) == key; })
             ? key
             : 0;
}

// Nothing where no receive is there for what comes back, or none like it was timed. Of several that
// are under way one is tried.
std::optional<CopyChoice::Way> Messages::way_to_tell(const Request& send) noexcept {
  if (!limits_.leads || !send.both_ways_ || !both_ways_.knows(send.size_)) return std::nullopt;
  return std::exchange(has_told_, true) ? both_ways_.usual(send.size_)
                                        : both_ways_.upcoming(send.size_);
}

// False: as many offers stand as there can be.
bool Messages::offer(Request& request, Offer& offer) noexcept {
  auto& words = *out_.offer_words();
  const auto lent = words.lend();
  if (!lent) return false;
  request.words_ = &words;
  request.slot_ = lent->slot;
  offer.slot = lent->slot;
  offer.word = lent->word;
  offer.region = mappable(request);
  offer.way = way_to_tell(request);
  for (const auto& piece : request.from_)
    offer.pieces[offer.count++] = {reinterpret_cast<uint64_t>(piece.data()), piece.size()};
  return true;
}

// What is reduced out of the channel's own memory is read once, while it is in the cache: a copy
// before that is one too many. Measured as above: an all_reduce of 64 KB is at 1.16 with that copy
// and at 1.29 without, a reduce_scatter of 16 MB at 4.2 and at 5.4. Where the peer's memory is
// mapped, it is reduced out of that.
bool Messages::may_fetch(const Request& receive) const noexcept {
  return out_.fetches() && (receive.consumer_ == nullptr || out_.maps());
}

bool Messages::can_be_offered(const Request& send) noexcept {
  return send.size_ > 0 && send.from_.size() <= Offer::kMostPieces;
}

// A message that is not small leaves before its receive is there. The clock runs from here on.
bool Messages::leaves_at_once(Request& request) noexcept {
  if (request.size_ <= limits_.eager_bytes) return false;
  request.both_ways_ = std::exchange(receives_before_, large_receives_) != large_receives_;
  if (request.size_ > most_at_once(request.both_ways_)) return false;
  // Half of the credit is for small ones. What the peer maps it reads where it lies.
  const bool can = request.from_.size() <= Channel::kMaxPieces &&
                   eager_out_ + cost(request.size_) <= limits_.eager_credit / 2 &&
                   !request.granted_ && out_.fetches() && mappable(request) == 0;
  if (!can) return false;
  request.began_ = Clock::now();
  return at_once_.next(request.size_);
}

// Whether it goes through the channel. Behind others that do, its time would not be its own.
// `offer`: nullptr before it has come.
void Messages::choose(Request& receive, const Offer* offer) noexcept {
  receive.is_chosen_ = true;
  receive.asked_ = receive.size_;
  // Where ranks take turns the copies count alone, which are the same whatever goes the other way.
  receive.both_ways_ = !limits_.takes_turns && is_answered(receive);
  const bool follows = receive.both_ways_ && !limits_.leads && !was_refused_ && offer != nullptr &&
                       offer->way.has_value();
  receive.is_timed_ = !follows && through_channel_ == 0;
  auto& choice = choice_of(receive);
  const auto way = follows             ? *offer->way
                   : receive.is_timed_ ? choice.next(receive.size_)
                                       : choice.usual(receive.size_);
  if (receive.both_ways_ && receive.is_timed_) has_told_ = false;
  receive.through_channel_ = way == CopyChoice::Way::kChannel;
  if (receive.through_channel_) ++through_channel_;
}

// Known before it is announced: where ranks take turns that saves the sender one.
bool Messages::goes_through_channel(Request& receive) noexcept {
  // What is mapped is read where it lies.
  if (!limits_.takes_turns || receive.size_ <= most_at_once(true) || receive.consumer_ != nullptr ||
      out_.maps())
    return false;
  choose(receive, nullptr);
  return receive.through_channel_;
}

// False: it goes through the channel instead.
bool Messages::begin(Fetch& fetch) {
  auto& request = *fetch.request;
  fetch.begun = true;
  if (fetch.views) return true;
  if (!request.is_chosen_ && request.size_ > most_at_once(is_answered(request)))
    choose(request, &fetch.offer);
  if (!request.is_chosen_ || request.is_timed_) request.began_ = Clock::now();
  return !request.through_channel_;
}

// It has arrived; or it could not be fetched, `refused`.
void Messages::end_time(Request& request, CopyChoice::Way way, bool refused) noexcept {
  const auto began = std::exchange(request.began_, {});
  if (!is_timed(began)) return;
  // Who waits for turns leaves its core to others: what a way costs there is the time of its
  // copies.
  const int copies = way == CopyChoice::Way::kFetch ? 1 : 2;
  const auto time = refused               ? std::chrono::nanoseconds::max()
                    : limits_.takes_turns ? copies * request.copied_
                                          : Clock::now() - began;
  if (request.is_chosen_)
    choice_of(request).took(way, request.asked_, time);
  else if (!refused)
    at_once_.fetched(request.size_, time);
}

// It is on its way through the channel no more, if choose() sent it there.
void Messages::leave_channel(Request& request) noexcept {
  if (std::exchange(request.through_channel_, false)) --through_channel_;
}

bool Messages::announce(Request& request) {
  auto frame = frame_of(FrameKind::kStart, request);
  frame.value = request.size_;
  Offer offered;
  if (!out_.fetches() || request.granted_ || !can_be_offered(request) || !offer(request, offered)) {
    request.started_ = out_.try_send(frame, {}, &request.borrowed_);
    return request.started_;
  }
  const Offer::Payload payload(offered);
  const auto bytes = payload.bytes();
  frame.bytes = static_cast<uint32_t>(bytes.size());
  request.started_ = out_.try_send(frame, {&bytes, 1}, &request.borrowed_);
  if (!request.started_) request.end_offer(/*taken=*/true);  // nobody has seen it
  return request.started_;
}

// The first byte that is copied; those before it are the last.
uint64_t Messages::fetched_from(const Request& request) const noexcept {
  if (request.consumer_ != nullptr || request.size_ < kLeastShared) return 0;
  return (request.size_ >> 16) * limits_.copies_from / kPage * kPage;
}

Channel::Fetched Messages::fetch_some(const Fetch& fetch) {
  auto& request = *fetch.request;
  if (request.consumer_ != nullptr) return consume_some(fetch);
  const uint64_t left = request.size_ - request.moved_;
  const uint64_t at = (fetched_from(request) + request.moved_) % request.size_;
  const uint64_t most = std::min({left, kAtOnce, request.size_ - at});
  const auto target = target_of(request.into_, at, most);
  const Stopwatch watch(request);
  const auto end =
      out_.fetch(fetch.offer, at, {target.pieces.data(), target.count}, request.passes_caches_);
  watch.stop();
  if (end == Channel::Fetched::kDone) request.moved_ += target.bytes;
  return end;
}

// Out of the peer's memory itself.
Channel::Fetched Messages::consume_some(const Fetch& fetch) {
  auto& request = *fetch.request;
  const auto part = out_.view(fetch.offer, request.moved_, kAtOnce);
  auto end = part.empty() ? Channel::Fetched::kRefused : out_.fetch(fetch.offer, 0, {});
  if (end != Channel::Fetched::kDone) return end;
  request.consumer_->consume(request.moved_, part);
  end = out_.fetch(fetch.offer, 0, {});
  // Refused now would have it sent, and taken, once more.
  if (end != Channel::Fetched::kDone) return Channel::Fetched::kGone;
  request.moved_ += part.size();
  return end;
}

bool Messages::fetch() {
  if (fetches_.empty()) return false;
  for (uint64_t done = 0; !fetches_.empty() && done < kAtOnce;) {
    auto& request = *fetches_.front().request;
    if (!fetches_.front().begun && !begin(fetches_.front())) {
      fetches_.erase(fetches_.begin());
      grant(request);
      continue;
    }
    const uint64_t before = request.moved_;
    const auto end = fetch_some(fetches_.front());
    done += request.moved_ - before;
    if (end == Channel::Fetched::kDone && request.moved_ < request.size_) continue;
    fetches_.erase(fetches_.begin());
    if (end == Channel::Fetched::kGone) continue;  // the receive waits for what is said of it
    if (end == Channel::Fetched::kRefused) {
      if (fetched_from(request) > 0) request.moved_ = 0;  // its beginning is missing
      end_time(request, CopyChoice::Way::kFetch, true);
      was_refused_ = true;
      const GrantFrame rest{request.moved_};
      grant(request, request.moved_ > 0 ? std::as_bytes(std::span(&rest, 1)) : ConstBytes{});
      continue;
    }
    end_time(request, CopyChoice::Way::kFetch);
    out_.post(frame_of(FrameKind::kTaken, request));
    auto& in = *receives(request.stream_);
    request.finish();
    in.remove(request.sequence_);
  }
  return true;
}

const char* Messages::on_taken(const Frame& frame) {
  auto* stream = sends(frame.stream);
  if (stream == nullptr) return nullptr;
  const auto open = stream->open.find(frame.sequence);
  if (open == stream->open.end() || !open->second->started_ || !open->second->is_offered())
    return "took what was not offered";
  auto& request = *open->second;
  stream->open.erase(open);
  request.moved_ = request.size_;
  if (const auto began = std::exchange(request.began_, {}); is_timed(began))
    at_once_.was_taken(request.size_, Clock::now() - began);
  request.end_offer(/*taken=*/true);
  request.finish();
  return nullptr;
}

}  // namespace torch::comms::transport
