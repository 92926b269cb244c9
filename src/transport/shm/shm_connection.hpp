#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/connect/peer_connection.hpp"
#include "transport/memory.hpp"
#include "transport/shm/shm_segment.hpp"

namespace torch::comms::transport::shm {

// Memory of the peer that is mapped here, as long as whoever imported it keeps it.
struct MappedPeerMemory {
  MemoryHandle handle;
  uint64_t mapping_offset = 0;  // of the mapping
  std::weak_ptr<const base::Mapping> mapping;
};

// What there is beside the shared memory of a pair: the socket wakes a sleeping peer, and its end,
// or the process's, tells that the peer has gone.
struct ShmPeer {
  base::FileDescriptor socket;  // none while the peer is to be called again
  base::FileDescriptor pidfd;   // where the system has such descriptors
  int pid = 0;
  bool can_copy = false;   // we may copy from and to its memory: asked once, at the start
  std::string end_reason;  // why; empty while it has not
  std::vector<MappedPeerMemory> mapped;
  std::shared_ptr<const base::Mapping> arena = {};  // the peer's, among those that are mapped
};

// Frames through a shared segment. What the peer wrote before its end is still handed over.
class ShmConnection final : public PeerConnection {
 public:
  // `side` writes to ring(side). `wire` outlives the channel, which takes back `copies` where the
  // system changes its mind; so does `seating`, if there is one, to which it introduces rank
  // `peer`.
  ShmConnection(ShmSegment segment, int side, ShmPeer& wire, int peer = 0,
                CoreBalancer* seating = nullptr);
  // The peer sees the end of the socket, unless this is a forked child's copy.
  ~ShmConnection() override;

  uint32_t max_payload() const noexcept override { return chunk_bytes_; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* borrowed) noexcept override;
  ReceiveStatus receive(FrameSink& sink) noexcept override;
  bool can_peek() const noexcept override { return true; }
  bool peek(Frame& frame, ConstBytes& payload) noexcept override {
    return consumer_.front(frame, payload) == RingConsumer::RingFront::kFrame;
  }
  void pop() noexcept override {
    consumer_.pop();
    if (consumer_.publish()) wake_peer();
  }
  // The peer is still to be called: this rank has to look for when.
  bool has_unflushed() const noexcept override { return !peer_state_.socket; }
  bool is_delivered() const noexcept override { return static_cast<bool>(peer_state_.socket); }
  const std::string& error_text() const noexcept override {
    return corruption_.empty() ? peer_state_.end_reason : corruption_;
  }
  bool supports_remote_read() const noexcept override { return peer_state_.can_copy; }
  std::shared_ptr<ReadValidityWords> read_validity_words() noexcept override {
    return read_validity_words_;
  }
  RemoteReadStatus remote_read(const RemoteReadDescriptor& offer, uint64_t offset,
                               std::span<const Bytes> into, bool past_caches) noexcept override;
  bool maps_peer_memory() const noexcept override {
    return peer_state_.can_copy && !peer_state_.mapped.empty();
  }
  ConstBytes map_view(const RemoteReadDescriptor& offer, uint64_t offset,
                      uint64_t most) noexcept override;
  bool prepare_sleep(bool wants_room) noexcept override;
  void finish_sleep() noexcept override;
  void wake_peer() noexcept override;

 private:
  bool is_valid(const RemoteReadDescriptor& offer) const noexcept;
  bool copy_mapped(const RemoteReadDescriptor& offer, uint64_t offset, std::span<const Bytes> into,
                   bool past_caches) noexcept;

  ShmSegment segment_;
  int side_;
  ShmPeer& peer_state_;
  std::shared_ptr<ReadValidityWords> read_validity_words_;
  uint32_t chunk_bytes_;
  RingProducer producer_;
  RingConsumer consumer_;
  int peer_;
  CoreBalancer* core_balancer_;
  uint64_t fork_generation_;
  std::string corruption_;
};

}  // namespace torch::comms::transport::shm
