#include "transport/framed_transport.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/fork.hpp"

namespace torch::comms::transport {
namespace {

template <class Piece>
uint64_t total(std::span<const Piece> pieces) noexcept {
  uint64_t sum = 0;
  for (const auto& piece : pieces) sum += piece.size();
  return sum;
}

// Of 65,536: of any few ranks in a row each is far from the others (Knuth, TAOCP 3, 6.4). A rank
// that is the only one to copy begins at the beginning, which takes 0.96 of the time.
uint32_t spread(int rank, int ranks) noexcept {
  return ranks > 2 ? (static_cast<uint32_t>(rank) * 40'503u) & 0xffffu : 0;
}

// Of an operation that was refused directly.
Errc code_of(const Peer& peer) noexcept {
  return peer.failure() != nullptr ? peer.failure()->code : Errc::kMismatch;
}

}  // namespace

FramedTransport::FramedTransport(TransportOptions options, Endpoint endpoint)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      regions_(std::make_shared<Regions>()),
      abort_(options_.abort ? options_.abort : std::make_shared<AbortSignal>()),
      policy_(WaitPolicy::for_ranks(options_.local_ranks)),
      fork_generation_(base::fork_generation()) {
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size)
    throw CommError(Errc::kInvalidArgument, "rank " + std::to_string(options_.rank) + " of " +
                                                std::to_string(options_.size) + " ranks cannot be");
  peers_.resize(static_cast<size_t>(options_.size));
  regions_->on_remove = [this](ConstBytes range) {
    if (forked()) return;  // the channels are the parent's
    for (auto* peer : active_) peer->withdraw(range);
  };
}

FramedTransport::~FramedTransport() { close_peers(); }

// What the last messages of a rank need to arrive, when it closes its link at once: also those for
// a peer that has connected here, or is about to, and was not let in yet.
void FramedTransport::linger() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience{200}, kMost{5000};
  const auto began = Clock::now();
  auto moved = began;
  const auto waits = [](Peer* peer) {
    return peer->failure() == nullptr &&
           (peer->waiting() || (peer->channel() != nullptr && !peer->channel()->has_arrived()));
  };
  for (auto now = began; std::any_of(active_.begin(), active_.end(), waits) && !abort_->raised() &&
                         now - moved < kPatience && now - began < kMost;
       now = Clock::now()) {
    if (progress()) moved = now;
    ::sched_yield();
  }
}

void FramedTransport::close_peers() noexcept {
  if (!forked()) linger();
  regions_->on_remove = nullptr;
  for (auto* peer : active_) peer->fail(Errc::kFinalized, "this link was closed");
}

bool FramedTransport::forked() const noexcept {
  return base::fork_generation() != fork_generation_;
}

Peer& FramedTransport::peer_of(int peer) {
  if (peer < 0 || peer >= options_.size)
    throw CommError(Errc::kInvalidArgument,
                    "peer is outside [0, " + std::to_string(options_.size) + ")",
                    {.rank = options_.rank, .peer = peer});
  auto& made = peers_[static_cast<size_t>(peer)];
  if (!made) {
    made = std::make_unique<Peer>(
        peer, *regions_,
        MessageLimits{.eager_bytes = options_.eager_bytes,
                      .at_once_bytes = std::max(options_.eager_bytes, options_.at_once_bytes),
                      .eager_credit = options_.eager_credit,
                      .takes_turns = policy_.spins == 0,
                      .leads = options_.rank < peer,
                      .copies_from = spread(options_.rank, options_.size)},
        closed_);
    active_.push_back(made.get());
  }
  return *made;
}

Peer& FramedTransport::known(int peer) const {
  if (peer < 0 || peer >= options_.size || !peers_[static_cast<size_t>(peer)])
    throw CommError(Errc::kInvalidArgument, "the peer was never connected",
                    {.rank = options_.rank, .peer = peer});
  return *peers_[static_cast<size_t>(peer)];
}

void FramedTransport::connect(int peer, const Endpoint& endpoint) {
  if (forked())
    throw CommError(Errc::kForked, "this link belongs to the parent process",
                    {.rank = options_.rank, .peer = peer});
  if (endpoint.link != endpoint_.link || endpoint.rank != peer)
    throw CommError(Errc::kInvalidArgument,
                    "the endpoint is of link '" + endpoint.link + "', rank " +
                        std::to_string(endpoint.rank) + "; expected '" + endpoint_.link + "'",
                    {.rank = options_.rank, .peer = peer});
  const auto state = peer_of(peer).state();
  if (state == PeerState::kConnecting && !abort_->raised()) start_connection(peer, endpoint);
  if (peer_of(peer).failure() == nullptr) learned(peer, endpoint);
}

void FramedTransport::open(int peer, std::unique_ptr<Channel> channel) {
  if (options_.wrap) channel = options_.wrap(peer, std::move(channel));
  peer_of(peer).open(std::move(channel));
  opened_.push_back(peer);
}

void FramedTransport::fail(int peer, Errc code, const std::string& why) noexcept {
  peers_[static_cast<size_t>(peer)]->fail(code, why);
}

PeerState FramedTransport::state(int peer) const noexcept {
  const auto index = static_cast<size_t>(peer);
  return index < peers_.size() && peers_[index] ? peers_[index]->state() : PeerState::kUnknown;
}

const PeerFailure* FramedTransport::failure(int peer) const noexcept {
  const auto index = static_cast<size_t>(peer);
  return index < peers_.size() && peers_[index] ? peers_[index]->failure() : nullptr;
}

Peer* FramedTransport::begin(Request& request, Request::Kind kind, int peer,
                             std::optional<uint32_t> received) {
  auto& found = known(peer);
  request.start(kind, peer);
  if (forked())
    request.finish(Errc::kForked);
  else if (abort_->raised())
    request.finish(Errc::kAborted);
  else if (const auto* failure = found.failure();
           failure != nullptr && !(received && found.messages.is_here(*received)))
    request.finish(failure->code);
  return request.done() ? nullptr : &found;
}

void FramedTransport::begin_send(Request& request, int peer, uint32_t stream, uint32_t tag) {
  request.stream_ = stream;
  request.key_ = tag;
  auto& found = known(peer);
  found.messages.send(request);
  if (!request.done()) found.pump();
}

bool FramedTransport::has_message(int peer, uint32_t stream) const noexcept {
  const auto index = static_cast<size_t>(peer);
  return index < peers_.size() && peers_[index] && peers_[index]->messages.is_known(stream);
}

void FramedTransport::close_streams(uint32_t first, uint32_t last, Errc error) {
  TC_CHECK(first <= last);
  if (forked()) return;
  closed_.add(first, last);
  for (auto* peer : active_) peer->messages.close(first, last, error);
}

void FramedTransport::send(Request& request, int peer, uint32_t stream,
                           std::span<const ConstBytes> pieces, uint32_t tag) {
  if (begin(request, Request::Kind::kSend, peer) == nullptr) return;
  request.from_ = pieces;
  request.size_ = total(pieces);
  begin_send(request, peer, stream, tag);
}

void FramedTransport::send(Request& request, int peer, uint32_t stream, ConstBytes bytes,
                           uint32_t tag) {
  if (begin(request, Request::Kind::kSend, peer) == nullptr) return;
  request.one_from_ = bytes;
  request.from_ = {&request.one_from_, 1};
  request.size_ = bytes.size();
  begin_send(request, peer, stream, tag);
}

void FramedTransport::begin_receive(Request& request, int peer, uint32_t stream, uint32_t tag) {
  request.stream_ = stream;
  request.key_ = tag;
  known(peer).messages.receive(request);
}

void FramedTransport::receive(Request& request, int peer, uint32_t stream,
                              std::span<const Bytes> pieces, uint32_t tag) {
  if (begin(request, Request::Kind::kReceive, peer, stream) == nullptr) return;
  request.into_ = pieces;
  request.size_ = total(pieces);
  begin_receive(request, peer, stream, tag);
}

void FramedTransport::receive(Request& request, int peer, uint32_t stream, Bytes bytes,
                              uint32_t tag) {
  if (begin(request, Request::Kind::kReceive, peer, stream) == nullptr) return;
  request.one_into_ = bytes;
  request.into_ = {&request.one_into_, 1};
  request.size_ = bytes.size();
  begin_receive(request, peer, stream, tag);
}

void FramedTransport::receive(Request& request, int peer, uint32_t stream, uint64_t capacity,
                              Consumer& consumer, uint32_t tag) {
  if (begin(request, Request::Kind::kReceive, peer, stream) == nullptr) return;
  request.consumer_ = &consumer;
  request.size_ = capacity;
  begin_receive(request, peer, stream, tag);
}

uint64_t FramedTransport::at_once_bytes(int peer) const noexcept {
  const auto& found = peers_[static_cast<size_t>(peer)];
  return found && !forked() && !abort_->raised() ? found->at_once_bytes() : 0;
}

bool FramedTransport::try_send(int peer, uint32_t stream, ConstBytes bytes, uint32_t tag) {
  return peers_[static_cast<size_t>(peer)]->messages.try_send(stream, bytes, tag);
}

bool FramedTransport::try_receive(int peer, uint32_t stream, const Landing& landing, uint32_t tag) {
  return peers_[static_cast<size_t>(peer)]->try_receive(stream, landing, tag);
}

std::unique_ptr<Memory> FramedTransport::register_memory(Bytes bytes) {
  return std::make_unique<RegisteredMemory>(regions_, options_.rank, bytes);
}

std::unique_ptr<Memory> FramedTransport::allocate(uint64_t size) {
  auto* at = ::mmap(nullptr, std::max<uint64_t>(size, 1), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw CommError(Errc::kResourceExhausted, "no " + std::to_string(size) + " bytes of memory",
                    {.rank = options_.rank});
  base::Mapping mapping(at, std::max<uint64_t>(size, 1));
  return std::make_unique<RegisteredMemory>(
      regions_, options_.rank, Bytes(mapping.bytes().data(), size), std::move(mapping));
}

std::unique_ptr<RemoteMemory> FramedTransport::import(const MemoryHandle& handle) {
  static_cast<void>(known(handle.rank));
  return std::make_unique<RemoteMemory>(RemoteMemory{handle});
}

void FramedTransport::require_inside(const RemoteMemory& memory, uint64_t offset, uint64_t size) {
  const auto& handle = memory.handle;
  if (offset <= handle.size && size <= handle.size - offset) return;
  throw CommError(Errc::kOutOfRange,
                  "bytes [" + std::to_string(offset) + ", +" + std::to_string(size) +
                      ") are not in a region of " + std::to_string(handle.size) + " bytes",
                  {.peer = handle.rank});
}

void FramedTransport::put(Request& request, const RemoteMemory& to, uint64_t offset,
                          ConstBytes from) {
  require_inside(to, offset, from.size());
  auto* peer = begin(request, Request::Kind::kPut, to.handle.rank);
  if (peer == nullptr) return;
  request.size_ = from.size();
  const auto direct = from.empty() ? Direct::kDone : put_directly(to, offset, from);
  if (direct == Direct::kFailed) return request.finish(code_of(*peer));
  if (direct == Direct::kDone) return request.finish();
  request.stream_ = to.handle.region;
  request.key_ = to.handle.key;
  request.offset_ = offset;
  request.one_from_ = from;
  request.from_ = {&request.one_from_, 1};
  peer->one_sided.put(request);
  peer->pump();
}

void FramedTransport::get(Request& request, const RemoteMemory& from, uint64_t offset, Bytes into) {
  require_inside(from, offset, into.size());
  auto* peer = begin(request, Request::Kind::kGet, from.handle.rank);
  if (peer == nullptr) return;
  request.size_ = into.size();
  const auto direct = into.empty() ? Direct::kDone : get_directly(from, offset, into);
  if (direct == Direct::kFailed) return request.finish(code_of(*peer));
  if (direct == Direct::kDone) return request.finish();
  request.stream_ = from.handle.region;
  request.key_ = from.handle.key;
  request.offset_ = offset;
  request.one_into_ = into;
  peer->one_sided.get(request);
}

void FramedTransport::signal(const RemoteMemory& to, uint64_t offset, uint64_t amount,
                             SignalOp op) {
  require_inside(to, offset, sizeof(uint64_t));
  if ((to.handle.address + offset) % sizeof(uint64_t) != 0)
    throw CommError(Errc::kInvalidArgument, "a counter must be aligned to 8 bytes",
                    {.peer = to.handle.rank});
  auto& peer = known(to.handle.rank);
  if (forked() || abort_->raised() || peer.failure() != nullptr) return;
  // Directly, it could overtake puts that went as frames.
  if (!peer.one_sided.unflushed() && signal_directly(to, offset, amount, op) == Direct::kDone)
    return;
  peer.one_sided.signal(to.handle, offset, amount, op);
}

void FramedTransport::flush(Request& request, int peer) {
  auto* found = begin(request, Request::Kind::kFlush, peer);
  if (found == nullptr) return;
  if (found->one_sided.unflushed())
    found->one_sided.flush(request);
  else
    request.finish();
}

void FramedTransport::end(Request& request, Errc error) {
  if (request.done() || forked()) return;
  auto& peer = known(request.peer());
  if (request.kind_ == Request::Kind::kSend || request.kind_ == Request::Kind::kReceive)
    peer.messages.end(request, error);
  else
    peer.one_sided.end(request, error);
}

template <class Step>
bool FramedTransport::move(const Step& step) noexcept {
  if (forked()) return false;
  if (abort_->raised()) {
    if (aborted_) return false;
    aborted_ = true;
    for (auto* peer : active_) peer->fail(Errc::kAborted, "this rank aborted");
    return true;
  }
  bool moved = progress_connections();
  // The next rank first, so that not everybody copies from rank 0 at the same time.
  const size_t count = active_.size(), first = static_cast<size_t>(options_.rank);
  for (size_t i = 0; i < count; ++i) moved |= step(*active_[(first + i) % count]);
  return moved;
}

bool FramedTransport::progress() noexcept {
  return move([](Peer& peer) { return peer.progress(); });
}

bool FramedTransport::progress_but(uint32_t stream) noexcept {
  return move([stream](Peer& peer) { return !peer.shows_next(stream) && peer.progress(); });
}

bool FramedTransport::unsent() const noexcept {
  if (forked() || abort_->raised()) return false;
  return std::any_of(active_.begin(), active_.end(), [](auto* peer) { return peer->unsent(); });
}

bool FramedTransport::prepare_sleep() noexcept {
  // Said to all before the fence, looked at once more after it.
  for (auto* peer : active_) peer->prepare_sleep();
  fence_peers();
  bool quiet = !abort_->raised();
  for (auto* peer : active_) quiet = peer->prepare_sleep() && quiet;
  return quiet;
}

void FramedTransport::finish_sleep() noexcept {
  for (auto* peer : active_)
    if (auto* channel = peer->channel()) channel->finish_sleep();
  woke();
}

Channel* FramedTransport::channel(int peer) noexcept {
  const auto& found = peers_[static_cast<size_t>(peer)];
  return found ? found->channel() : nullptr;
}

}  // namespace torch::comms::transport
