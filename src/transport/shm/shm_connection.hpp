#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/connect/peer_connection.hpp"
#include "transport/memory.hpp"
#include "transport/shm/shm_segment.hpp"

namespace torch::comms::transport::shm {

// Memory of the peer that is mapped here, as long as the importer keeps the mapping.
struct MappedPeerMemory {
  MemoryHandle handle;
  uint64_t mapping_offset = 0;  // bytes; where in the mapping the memory begins
  std::weak_ptr<const base::Mapping> mapping;
};

// The state of a peer beside the shared segment. The socket wakes a sleeping peer. The end of the
// socket or of the process shows that the peer has ended.
struct ShmPeer {
  base::FileDescriptor socket;  // empty while the connector has to retry
  base::FileDescriptor pidfd;   // empty if the system has no pidfds
  int pid = 0;
  // CMA from and to its memory is allowed; checked once, at the start.
  bool can_copy = false;
  std::string end_reason;  // why the peer has ended; empty while it has not
  std::vector<MappedPeerMemory> mapped;
  std::shared_ptr<const base::Mapping> arena = {};  // the peer's arena, which is also in `mapped`
};

// Moves frames through a shared segment. Frames that the peer wrote before its end are still
// delivered.
class ShmConnection final : public PeerConnection {
 public:
  // `side` writes to ring(side). `peer_state` must outlive the connection, which clears its
  // can_copy if the system forbids copies later. So must `core_balancer`, if given; the connection
  // adds rank `peer` to it.
  ShmConnection(ShmSegment segment, int side, ShmPeer& peer_state, int peer = 0,
                CoreBalancer* core_balancer = nullptr);
  // Ends the socket, which the peer sees, unless this is a forked child's copy.
  ~ShmConnection() override;

  uint32_t max_payload() const noexcept override { return chunk_bytes_; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* frames_in_use) noexcept override;
  ReceiveStatus receive(FrameSink& sink) noexcept override;
  bool can_peek() const noexcept override { return true; }
  bool peek(Frame& frame, ConstBytes& payload) noexcept override {
    return consumer_.front(frame, payload) == RingConsumer::RingFront::kFrame;
  }
  void pop() noexcept override {
    consumer_.pop();
    if (consumer_.publish()) wake_peer();
  }
  // While the connector has to retry, this rank must continue to make progress.
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
