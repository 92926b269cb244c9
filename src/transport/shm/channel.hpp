#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/memory.hpp"
#include "transport/peer_connection.hpp"
#include "transport/shm/segment.hpp"

namespace torch::comms::transport::shm {

// Memory of the peer that is mapped here, as long as whoever imported it keeps it.
struct MappedMemory {
  MemoryHandle handle;
  uint64_t skip = 0;  // of the mapping
  std::weak_ptr<const base::Mapping> mapping;
};

// What there is beside the shared memory of a pair: the socket wakes a sleeping peer, and its end,
// or the process's, tells that the peer has gone.
struct Wire {
  base::FileDescriptor socket;   // none while the peer is to be called again
  base::FileDescriptor process;  // where the system has such descriptors
  int pid = 0;
  bool copies = false;  // we may copy from and to its memory: asked once, at the start
  std::string ended;    // why; empty while it has not
  std::vector<MappedMemory> mapped;
  std::shared_ptr<const base::Mapping> arena = {};  // the peer's, among those that are mapped
};

// Frames through a shared segment. What the peer wrote before its end is still handed over.
class ShmChannel final : public PeerConnection {
 public:
  // `side` writes to ring(side). `wire` outlives the channel, which takes back `copies` where the
  // system changes its mind; so does `seating`, if there is one, to which it introduces rank
  // `peer`.
  ShmChannel(Segment segment, int side, Wire& wire, int peer = 0, CoreBalancer* seating = nullptr);
  // The peer sees the end of the socket, unless this is a forked child's copy.
  ~ShmChannel() override;

  uint32_t max_payload() const noexcept override { return chunk_bytes_; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* borrowed) noexcept override;
  ReceiveStatus receive(FrameSink& sink) noexcept override;
  bool can_peek() const noexcept override { return true; }
  bool peek(Frame& frame, ConstBytes& payload) noexcept override {
    return consumer_.front(frame, payload) == RingConsumer::Front::kFrame;
  }
  void pop() noexcept override {
    consumer_.pop();
    if (consumer_.publish()) wake_peer();
  }
  // The peer is still to be called: this rank has to look for when.
  bool has_unflushed() const noexcept override { return !wire_.socket; }
  bool is_delivered() const noexcept override { return static_cast<bool>(wire_.socket); }
  const std::string& error_text() const noexcept override {
    return damaged_.empty() ? wire_.ended : damaged_;
  }
  bool supports_remote_read() const noexcept override { return wire_.copies; }
  std::shared_ptr<ReadValidityWords> read_validity_words() noexcept override {
    return offer_words_;
  }
  RemoteReadStatus remote_read(const RemoteReadDescriptor& offer, uint64_t offset,
                               std::span<const Bytes> into, bool past_caches) noexcept override;
  bool maps_peer_memory() const noexcept override { return wire_.copies && !wire_.mapped.empty(); }
  ConstBytes map_view(const RemoteReadDescriptor& offer, uint64_t offset,
                      uint64_t most) noexcept override;
  bool prepare_sleep(bool wants_room) noexcept override;
  void finish_sleep() noexcept override;
  void wake_peer() noexcept override;

 private:
  bool stands(const RemoteReadDescriptor& offer) const noexcept;
  bool copy_viewed(const RemoteReadDescriptor& offer, uint64_t offset, std::span<const Bytes> into,
                   bool past_caches) noexcept;

  Segment segment_;
  int side_;
  Wire& wire_;
  std::shared_ptr<ReadValidityWords> offer_words_;
  uint32_t chunk_bytes_;
  RingProducer producer_;
  RingConsumer consumer_;
  int peer_;
  CoreBalancer* seating_;
  uint64_t fork_generation_;
  std::string damaged_;
};

}  // namespace torch::comms::transport::shm
