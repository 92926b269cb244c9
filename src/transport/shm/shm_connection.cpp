#include "transport/shm/shm_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "base/os/streaming_copy.hpp"
#include "transport/shm/cma.hpp"
#include "transport/shm/fence.hpp"

namespace torch::comms::transport::shm {
namespace {

constexpr int kFramesAtOnce = 64;
constexpr uint64_t kBytesAtOnce = 1u << 20;

}  // namespace

ShmConnection::ShmConnection(ShmSegment segment, int side, ShmPeer& peer_state, int peer,
                             CoreBalancer* core_balancer)
    : segment_(std::move(segment)),
      side_(side),
      peer_state_(peer_state),
      read_validity_words_(std::make_shared<ReadValidityWords>(segment_.memory(),
                                                               segment_.read_validity_words(side))),
      chunk_bytes_(segment_.ring(side).shape.chunk_bytes),
      producer_(segment_.ring(side)),
      consumer_(segment_.ring(1 - side)),
      peer_(peer),
      core_balancer_(core_balancer),
      fork_generation_(base::fork_generation()) {
  segment_.sleep_flags(side_).fetch_or(
      SleepFlags::kAttached | (can_fence_peers() ? SleepFlags::kFences : 0),
      std::memory_order_release);
  if (core_balancer_ != nullptr)
    core_balancer_->add_peer(peer_, segment_.core_slot(side_), segment_.core_slot(1 - side_));
}

ShmConnection::~ShmConnection() {
  if (fork_generation_ != base::fork_generation()) return;
  if (core_balancer_ != nullptr) core_balancer_->remove_peer(peer_);
  ::shutdown(peer_state_.socket.get(), SHUT_RDWR);
}

bool ShmConnection::try_send(const Frame& frame, std::span<const ConstBytes> payload,
                             uint32_t*) noexcept {
  if (!error_text().empty()) return false;
  // The producer's fence is left out only if the peer fences this process before its sleep and this
  // process takes part in that.
  const bool fenced =
      (segment_.sleep_flags(1 - side_).load(std::memory_order_relaxed) & SleepFlags::kFences) &&
      can_fence_peers();
  if (!producer_.push(frame, payload, !fenced)) return false;
  wake_peer();
  return true;
}

void ShmConnection::wake_peer() noexcept {
  auto& flags = segment_.sleep_flags(1 - side_);
  if ((flags.load(std::memory_order_seq_cst) & SleepFlags::kAsleep) == 0) return;
  if ((flags.fetch_and(~SleepFlags::kAsleep, std::memory_order_acq_rel) & SleepFlags::kAsleep) == 0)
    return;
  const char wakeup = 1;
  // A full socket has unread wake-ups in it; the reader sees a broken socket.
  [[maybe_unused]] const auto sent =
      ::send(peer_state_.socket.get(), &wakeup, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

PeerConnection::ReceiveStatus ShmConnection::receive(FrameSink& sink) noexcept {
  // Checked before the ring, because frames that came before the end are in the ring.
  const bool ended = !error_text().empty();
  Frame frame;
  ConstBytes payload;
  uint64_t bytes = 0;
  int frames = 0;
  for (; frames < kFramesAtOnce && bytes < kBytesAtOnce; ++frames) {
    const auto front = consumer_.front(frame, payload);
    if (front == RingConsumer::RingFront::kEmpty) break;
    if (front == RingConsumer::RingFront::kCorrupted) {
      corruption_ = "protocol error: the ring in shared memory is corrupted";
      return ReceiveStatus::kBroken;
    }
    const bool more = sink.deliver(frame, payload);
    bytes += frame.bytes;
    consumer_.pop();
    if (consumer_.publish()) wake_peer();
    if (!more) return ReceiveStatus::kSome;
  }
  if (frames > 0) return ReceiveStatus::kSome;
  return ended ? ReceiveStatus::kBroken : ReceiveStatus::kNothing;
}

PeerConnection::RemoteReadStatus ShmConnection::remote_read(const RemoteReadDescriptor& offer,
                                                            uint64_t offset,
                                                            std::span<const Bytes> into,
                                                            bool past_caches) noexcept {
  if (!peer_state_.can_copy) return RemoteReadStatus::kRefused;
  if (copy_mapped(offer, offset, into, past_caches))
    return is_valid(offer) ? RemoteReadStatus::kDone : RemoteReadStatus::kWithdrawn;
  const auto copied = cma_read_message(peer_state_.pid, offer, offset, into);
  if (copied == CmaResult::kDone)
    return is_valid(offer) ? RemoteReadStatus::kDone : RemoteReadStatus::kWithdrawn;
  if (copied == CmaResult::kUnreadable)
    return is_valid(offer) ? RemoteReadStatus::kRefused : RemoteReadStatus::kWithdrawn;
  if (copied == CmaResult::kPeerExited) return RemoteReadStatus::kWithdrawn;
  peer_state_.can_copy = false;
  base::log(base::LogLevel::kInfo, "shm transport: the system does not permit CMA from process " +
                                       std::to_string(peer_state_.pid) + " (" +
                                       std::strerror(errno) +
                                       "); its messages are copied through shared memory");
  return RemoteReadStatus::kRefused;
}

bool ShmConnection::is_valid(const RemoteReadDescriptor& offer) const noexcept {
  return ReadValidityWords::is_valid(segment_.read_validity_words(1 - side_), offer.slot,
                                     offer.word);
}

// Copies from mapped memory of the peer.
// Returns: false if some of the message is not mapped.
bool ShmConnection::copy_mapped(const RemoteReadDescriptor& offer, uint64_t offset,
                                std::span<const Bytes> into, bool past_caches) noexcept {
  for (auto rest : into)
    while (!rest.empty()) {
      const auto part = map_view(offer, offset, rest.size());
      if (part.empty()) return false;
      base::copy_bytes(rest.data(), part.data(), part.size(), past_caches);
      offset += part.size();
      rest = rest.subspan(part.size());
    }
  return true;
}

// The descriptor names the sender's region by its key, so its addresses belong to that region.
ConstBytes ShmConnection::map_view(const RemoteReadDescriptor& offer, uint64_t offset,
                                   uint64_t most) noexcept {
  if (offer.region == 0) return {};
  const auto memory = std::ranges::find(peer_state_.mapped, offer.region,
                                        [](const auto& one) { return one.handle.key; });
  if (memory == peer_state_.mapped.end()) return {};
  const auto mapping = memory->mapping.lock();
  if (!mapping) return {};
  const auto& handle = memory->handle;
  bool seen = false;
  ConstBytes found;
  offer.visit(offset, most, [&](uint64_t address, uint64_t bytes) {
    if (std::exchange(seen, true)) return;
    const bool inside = address >= handle.address && bytes <= handle.size &&
                        address - handle.address <= handle.size - bytes;
    if (inside)
      found = mapping->bytes().subspan(memory->mapping_offset + (address - handle.address), bytes);
  });
  return found;
}

bool ShmConnection::prepare_sleep(bool wants_room) noexcept {
  if (!error_text().empty()) return false;
  segment_.sleep_flags(side_).fetch_or(SleepFlags::kAsleep, std::memory_order_seq_cst);
  return !consumer_.is_ready() && !(wants_room && producer_.has_room_changed());
}

void ShmConnection::finish_sleep() noexcept {
  auto& flags = segment_.sleep_flags(side_);
  if ((flags.load(std::memory_order_relaxed) & SleepFlags::kAsleep) != 0)
    flags.fetch_and(~SleepFlags::kAsleep, std::memory_order_relaxed);
}

}  // namespace torch::comms::transport::shm
