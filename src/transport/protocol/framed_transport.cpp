#include "transport/protocol/framed_transport.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/os/fork.hpp"

namespace torch::comms::transport {
namespace {

template <class Piece>
uint64_t total(std::span<const Piece> pieces) noexcept {
  uint64_t sum = 0;
  for (const auto& piece : pieces) sum += piece.size();
  return sum;
}

// Returns: where in large messages `rank` begins a copy, of 65,536. Any few consecutive ranks get
// starts that are far from each other (Knuth, TAOCP 3, 6.4). With two ranks only one copies and
// begins at the beginning, which takes 0.96 of the time.
uint32_t spread(int rank, int ranks) noexcept {
  return ranks > 2 ? (static_cast<uint32_t>(rank) * 40'503u) & 0xffffu : 0;
}

// Returns: the error of an operation for which put_directly() or get_directly() returned kFailed.
Errc code_of(const PeerProtocol& peer) noexcept {
  return peer.failure() != nullptr ? peer.failure()->code : Errc::kMismatch;
}

}  // namespace

FramedTransport::FramedTransport(TransportOptions options, Endpoint endpoint)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      regions_(std::make_shared<RegionTable>()),
      abort_(options_.abort ? options_.abort : std::make_shared<AbortSignal>()),
      wait_policy_(WaitPolicy::for_ranks(options_.local_ranks)),
      fork_generation_(base::fork_generation()) {
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size)
    throw CommError(Errc::kInvalidArgument,
                    "rank " + std::to_string(options_.rank) + " is not valid for " +
                        std::to_string(options_.size) + " ranks: expected 0 <= rank < size");
  peers_.resize(static_cast<size_t>(options_.size));
  regions_->on_remove = [this](ConstBytes range) {
    if (forked()) return;  // the connections are the parent's
    for (auto* peer : active_) peer->cancel_access(range);
  };
}

FramedTransport::~FramedTransport() { close_peers(); }

// Waits until the last messages of this rank have left, when it closes its transport right after
// them. This includes messages for a peer whose connection has not been accepted yet.
void FramedTransport::drain_before_close() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kIdleTimeout{200}, kMaxDrainTime{5000};
  const auto began = Clock::now();
  auto moved = began;
  const auto waits = [](PeerProtocol* peer) {
    return peer->failure() == nullptr &&
           (peer->has_waiting() ||
            (peer->connection() != nullptr && !peer->connection()->is_delivered()));
  };
  for (auto now = began;
       std::any_of(active_.begin(), active_.end(), waits) && !abort_->is_raised() &&
       now - moved < kIdleTimeout && now - began < kMaxDrainTime;
       now = Clock::now()) {
    if (progress()) moved = now;
    ::sched_yield();
  }
}

void FramedTransport::close_peers() noexcept {
  if (!forked()) drain_before_close();
  regions_->on_remove = nullptr;
  for (auto* peer : active_) peer->fail(Errc::kFinalized, "this rank has closed the transport");
}

bool FramedTransport::forked() const noexcept {
  return base::fork_generation() != fork_generation_;
}

PeerProtocol& FramedTransport::peer_of(int peer) {
  if (peer < 0 || peer >= options_.size)
    throw CommError(Errc::kInvalidArgument,
                    "peer is outside [0, " + std::to_string(options_.size) + ")",
                    {.rank = options_.rank, .peer = peer});
  auto& entry = peers_[static_cast<size_t>(peer)];
  if (!entry) {
    entry = std::make_unique<PeerProtocol>(
        peer, *regions_,
        MessageProtocolOptions{
            .eager_bytes = options_.eager_bytes,
            .inline_eager_bytes = std::max(options_.eager_bytes, options_.inline_eager_bytes),
            .eager_credit = options_.eager_credit,
            .is_oversubscribed = wait_policy_.spins == 0,
            .is_initiator = options_.rank < peer,
            .copy_start_fraction = spread(options_.rank, options_.size)},
        closed_);
    active_.push_back(entry.get());
  }
  return *entry;
}

PeerProtocol& FramedTransport::require_peer(int peer) const {
  if (peer < 0 || peer >= options_.size || !peers_[static_cast<size_t>(peer)])
    throw CommError(Errc::kInvalidArgument, "the peer was never connected",
                    {.rank = options_.rank, .peer = peer});
  return *peers_[static_cast<size_t>(peer)];
}

void FramedTransport::connect(int peer, const Endpoint& endpoint) {
  if (forked())
    throw CommError(Errc::kForked,
                    "this transport belongs to the parent process; a forked child cannot use it",
                    {.rank = options_.rank, .peer = peer});
  if (endpoint.link != endpoint_.link || endpoint.rank != peer)
    throw CommError(Errc::kInvalidArgument,
                    "the endpoint is of transport '" + endpoint.link + "' and rank " +
                        std::to_string(endpoint.rank) + "; expected transport '" + endpoint_.link +
                        "' and rank " + std::to_string(peer),
                    {.rank = options_.rank, .peer = peer});
  const auto state = peer_of(peer).state();
  if (state == PeerState::kConnecting && !abort_->is_raised()) start_connection(peer, endpoint);
  if (peer_of(peer).failure() == nullptr) on_endpoint(peer, endpoint);
}

void FramedTransport::open(int peer, std::unique_ptr<PeerConnection> peer_connection) {
  if (options_.wrap_connection)
    peer_connection = options_.wrap_connection(peer, std::move(peer_connection));
  peer_of(peer).open(std::move(peer_connection));
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

PeerProtocol* FramedTransport::begin(Request& request, Request::Kind kind, int peer,
                                     std::optional<uint32_t> received) {
  auto& found = require_peer(peer);
  request.start(kind, peer);
  if (forked())
    request.finish(Errc::kForked);
  else if (abort_->is_raised())
    request.finish(Errc::kAborted);
  else if (const auto* failure = found.failure();
           failure != nullptr && !(received && found.messages.has_whole_unexpected(*received)))
    request.finish(failure->code);
  return request.is_done() ? nullptr : &found;
}

void FramedTransport::begin_send(Request& request, int peer, uint32_t stream, uint32_t tag) {
  request.stream_ = stream;
  request.key_ = tag;
  auto& found = require_peer(peer);
  found.messages.send(request);
  if (!request.is_done()) found.send_ready();
}

bool FramedTransport::has_message(int peer, uint32_t stream) const noexcept {
  const auto index = static_cast<size_t>(peer);
  return index < peers_.size() && peers_[index] && peers_[index]->messages.has_unexpected(stream);
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
  require_peer(peer).messages.receive(request);
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
                              ReceiveSink& consumer, uint32_t tag) {
  if (begin(request, Request::Kind::kReceive, peer, stream) == nullptr) return;
  request.sink_ = &consumer;
  request.size_ = capacity;
  begin_receive(request, peer, stream, tag);
}

uint64_t FramedTransport::inline_eager_bytes(int peer) const noexcept {
  const auto& found = peers_[static_cast<size_t>(peer)];
  return found && !forked() && !abort_->is_raised() ? found->inline_eager_bytes() : 0;
}

bool FramedTransport::try_send(int peer, uint32_t stream, ConstBytes bytes, uint32_t tag) {
  return peers_[static_cast<size_t>(peer)]->messages.try_send(stream, bytes, tag);
}

bool FramedTransport::try_receive(int peer, uint32_t stream, const ReceiveTarget& target,
                                  uint32_t tag) {
  return peers_[static_cast<size_t>(peer)]->try_receive(stream, target, tag);
}

std::unique_ptr<MemoryRegion> FramedTransport::register_memory(Bytes bytes) {
  return std::make_unique<RegisteredMemory>(regions_, options_.rank, bytes);
}

std::unique_ptr<MemoryRegion> FramedTransport::allocate(uint64_t size) {
  auto* at = ::mmap(nullptr, std::max<uint64_t>(size, 1), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw CommError(Errc::kResourceExhausted,
                    "out of memory: mmap of " + std::to_string(size) + " bytes failed",
                    {.rank = options_.rank});
  base::Mapping mapping(at, std::max<uint64_t>(size, 1));
  return std::make_unique<RegisteredMemory>(
      regions_, options_.rank, Bytes(mapping.bytes().data(), size), std::move(mapping));
}

std::unique_ptr<RemoteMemory> FramedTransport::import(const MemoryHandle& handle) {
  static_cast<void>(require_peer(handle.rank));
  return std::make_unique<RemoteMemory>(RemoteMemory{handle});
}

void FramedTransport::require_inside(const RemoteMemory& memory, uint64_t offset, uint64_t size) {
  const auto& handle = memory.handle;
  if (offset <= handle.size && size <= handle.size - offset) return;
  throw CommError(Errc::kOutOfRange,
                  std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                      " are outside of the memory region of " + std::to_string(handle.size) +
                      " bytes",
                  {.peer = handle.rank});
}

void FramedTransport::put(Request& request, const RemoteMemory& to, uint64_t offset,
                          ConstBytes from) {
  require_inside(to, offset, from.size());
  auto* peer = begin(request, Request::Kind::kPut, to.handle.rank);
  if (peer == nullptr) return;
  request.size_ = from.size();
  const auto direct = from.empty() ? DirectResult::kDone : put_directly(to, offset, from);
  if (direct == DirectResult::kFailed) return request.finish(code_of(*peer));
  if (direct == DirectResult::kDone) return request.finish();
  request.stream_ = to.handle.region;
  request.key_ = to.handle.key;
  request.offset_ = offset;
  request.one_from_ = from;
  request.from_ = {&request.one_from_, 1};
  peer->one_sided.put(request);
  peer->send_ready();
}

void FramedTransport::get(Request& request, const RemoteMemory& from, uint64_t offset, Bytes into) {
  require_inside(from, offset, into.size());
  auto* peer = begin(request, Request::Kind::kGet, from.handle.rank);
  if (peer == nullptr) return;
  request.size_ = into.size();
  const auto direct = into.empty() ? DirectResult::kDone : get_directly(from, offset, into);
  if (direct == DirectResult::kFailed) return request.finish(code_of(*peer));
  if (direct == DirectResult::kDone) return request.finish();
  request.stream_ = from.handle.region;
  request.key_ = from.handle.key;
  request.offset_ = offset;
  request.one_into_ = into;
  peer->one_sided.get(request);
}

void FramedTransport::signal(const RemoteMemory& to, uint64_t offset, uint64_t amount,
                             CounterOp op) {
  require_inside(to, offset, sizeof(uint64_t));
  if ((to.handle.address + offset) % sizeof(uint64_t) != 0)
    throw CommError(Errc::kInvalidArgument, "a counter must be aligned to 8 bytes",
                    {.peer = to.handle.rank});
  auto& peer = require_peer(to.handle.rank);
  if (forked() || abort_->is_raised() || peer.failure() != nullptr) return;
  // A direct signal could overtake puts that were sent as frames.
  if (!peer.one_sided.has_unflushed() &&
      signal_directly(to, offset, amount, op) == DirectResult::kDone)
    return;
  peer.one_sided.signal(to.handle, offset, amount, op);
}

void FramedTransport::flush(Request& request, int peer) {
  auto* found = begin(request, Request::Kind::kFlush, peer);
  if (found == nullptr) return;
  if (found->one_sided.has_unflushed())
    found->one_sided.flush(request);
  else
    request.finish();
}

void FramedTransport::cancel(Request& request, Errc error) {
  if (request.is_done() || forked()) return;
  auto& peer = require_peer(request.peer());
  if (request.kind_ == Request::Kind::kSend || request.kind_ == Request::Kind::kReceive)
    peer.messages.cancel(request, error);
  else
    peer.one_sided.cancel(request, error);
}

template <class Step>
bool FramedTransport::for_active_peers(const Step& step) noexcept {
  if (forked()) return false;
  if (abort_->is_raised()) {
    if (aborted_) return false;
    aborted_ = true;
    for (auto* peer : active_) peer->fail(Errc::kAborted, "this rank aborted");
    return true;
  }
  bool moved = progress_connections();
  // Begins with the next rank, so that the ranks do not all copy from rank 0 at the same time.
  const size_t count = active_.size(), first = static_cast<size_t>(options_.rank);
  for (size_t i = 0; i < count; ++i) moved |= step(*active_[(first + i) % count]);
  return moved;
}

bool FramedTransport::progress() noexcept {
  return for_active_peers([](PeerProtocol& peer) { return peer.progress(); });
}

bool FramedTransport::progress_except(uint32_t stream) noexcept {
  return for_active_peers(
      [stream](PeerProtocol& peer) { return !peer.is_next_in_front(stream) && peer.progress(); });
}

bool FramedTransport::has_unsent() const noexcept {
  if (forked() || abort_->is_raised()) return false;
  return std::any_of(active_.begin(), active_.end(), [](auto* peer) { return peer->has_unsent(); });
}

bool FramedTransport::prepare_sleep() noexcept {
  // Announces the sleep to all peers before the fence and checks all of them again after it.
  for (auto* peer : active_) peer->prepare_sleep();
  fence_peers();
  bool can_sleep = !abort_->is_raised();
  for (auto* peer : active_) can_sleep = peer->prepare_sleep() && can_sleep;
  return can_sleep;
}

void FramedTransport::finish_sleep() noexcept {
  for (auto* peer : active_)
    if (auto* peer_connection = peer->connection()) peer_connection->finish_sleep();
  on_wake();
}

PeerConnection* FramedTransport::connection(int peer) noexcept {
  const auto& found = peers_[static_cast<size_t>(peer)];
  return found ? found->connection() : nullptr;
}

}  // namespace torch::comms::transport
