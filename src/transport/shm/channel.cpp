#include "transport/shm/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "transport/shm/direct.hpp"
#include "transport/shm/fence.hpp"

namespace torch::comms::transport::shm {
namespace {

constexpr int kFramesAtOnce = 64;
constexpr uint64_t kBytesAtOnce = 1u << 20;

}  // namespace

ShmChannel::ShmChannel(Segment segment, int side, Wire& wire) noexcept
    : segment_(std::move(segment)),
      side_(side),
      wire_(wire),
      chunk_bytes_(segment_.ring(side).shape.chunk_bytes),
      producer_(segment_.ring(side)),
      consumer_(segment_.ring(1 - side)),
      fork_generation_(base::fork_generation()) {
  if (can_fence_peers()) segment_.rest(side_).fetch_or(Rest::kFences, std::memory_order_release);
}

ShmChannel::~ShmChannel() {
  if (fork_generation_ == base::fork_generation()) ::shutdown(wire_.socket.get(), SHUT_RDWR);
}

bool ShmChannel::try_send(const Frame& frame, std::span<const ConstBytes> payload,
                          uint32_t*) noexcept {
  if (!broken().empty()) return false;
  // Only for a peer that makes us pass a fence, and only if we are one of those that do.
  const bool fenced = (segment_.rest(1 - side_).load(std::memory_order_relaxed) & Rest::kFences) &&
                      can_fence_peers();
  if (!producer_.push(frame, payload, !fenced)) return false;
  wake_peer();
  return true;
}

void ShmChannel::wake_peer() noexcept {
  auto& rest = segment_.rest(1 - side_);
  if ((rest.load(std::memory_order_seq_cst) & Rest::kAsleep) == 0) return;
  if ((rest.fetch_and(~Rest::kAsleep, std::memory_order_acq_rel) & Rest::kAsleep) == 0) return;
  const char bell = 1;
  // A full socket has unread bells in it, and a broken one is seen by its reader.
  [[maybe_unused]] const auto sent =
      ::send(wire_.socket.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Channel::Received ShmChannel::receive(FrameSink& sink) noexcept {
  const bool ended = !broken().empty();  // looked at first: what came before the end is in the ring
  Frame frame;
  ConstBytes payload;
  uint64_t bytes = 0;
  int frames = 0;
  for (; frames < kFramesAtOnce && bytes < kBytesAtOnce; ++frames) {
    const auto front = consumer_.front(frame, payload);
    if (front == RingConsumer::Front::kEmpty) break;
    if (front == RingConsumer::Front::kDamaged) {
      damaged_ = "its shared memory is damaged";
      return Received::kBroken;
    }
    const bool more = sink.deliver(frame, payload);
    bytes += frame.bytes;
    consumer_.pop();
    if (consumer_.publish()) wake_peer();
    if (!more) return Received::kSome;
  }
  if (frames > 0) return Received::kSome;
  return ended ? Received::kBroken : Received::kNothing;
}

Channel::Fetched ShmChannel::fetch(const Offer& offer, uint64_t offset,
                                   std::span<const Bytes> into) noexcept {
  if (!wire_.copies) return Fetched::kRefused;
  const bool viewed = copy_viewed(offer, offset, into);
  // What was mapped needs the system only for the look at the word.
  const auto copied =
      copy_offered(wire_.pid, offer, offset, viewed ? std::span<const Bytes>() : into);
  if (copied == Copied::kDone) return Fetched::kDone;
  if (copied == Copied::kGone || copied == Copied::kEnded) return Fetched::kGone;
  if (copied == Copied::kUnreadable) return Fetched::kRefused;
  wire_.copies = false;
  base::log(base::LogLevel::kInfo, "shm link: the system forbids copies from process " +
                                       std::to_string(wire_.pid) + " (" + std::strerror(errno) +
                                       "): its messages go through shared memory");
  return Fetched::kRefused;
}

// False where some of it is not mapped.
bool ShmChannel::copy_viewed(const Offer& offer, uint64_t offset,
                             std::span<const Bytes> into) noexcept {
  if (!maps()) return false;
  for (auto rest : into)
    while (!rest.empty()) {
      const auto part = view(offer, offset, rest.size());
      if (part.empty()) return false;
      std::memcpy(rest.data(), part.data(), part.size());
      offset += part.size();
      rest = rest.subspan(part.size());
    }
  return true;
}

ConstBytes ShmChannel::view(const Offer& offer, uint64_t offset, uint64_t most) noexcept {
  uint64_t address = 0, bytes = 0;
  for (size_t i = 0; i < offer.count && bytes == 0; ++i) {
    const auto& piece = offer.pieces[i];
    if (offset < piece.bytes) {
      address = piece.address + offset;
      bytes = std::min(piece.bytes - offset, most);
    } else {
      offset -= piece.bytes;
    }
  }
  if (bytes == 0) return {};
  for (const auto& memory : wire_.mapped) {
    const auto& handle = memory.handle;
    if (address < handle.address || bytes > handle.size ||
        address - handle.address > handle.size - bytes)
      continue;
    const auto mapping = memory.mapping.lock();
    // Open now, so these addresses are that memory's and nothing else's.
    if (!mapping || probe(wire_.pid, handle.key_address, handle.key) != Copied::kDone) continue;
    return mapping->bytes().subspan(memory.skip + (address - handle.address), bytes);
  }
  return {};
}

bool ShmChannel::prepare_sleep(bool wants_room) noexcept {
  if (!broken().empty()) return false;
  segment_.rest(side_).fetch_or(Rest::kAsleep, std::memory_order_seq_cst);
  return !consumer_.ready() && !(wants_room && producer_.room_changed());
}

void ShmChannel::finish_sleep() noexcept {
  auto& rest = segment_.rest(side_);
  if ((rest.load(std::memory_order_relaxed) & Rest::kAsleep) != 0)
    rest.fetch_and(~Rest::kAsleep, std::memory_order_relaxed);
}

}  // namespace torch::comms::transport::shm
