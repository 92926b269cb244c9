#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/protocol/frame.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport::shm {

// One direction of a pair of ranks in shared memory: a queue of frames in cells of one cache line,
// and a ring of bytes for the payloads that do not fit into a cell. A cell is its own flag, so a
// small frame moves with one cache line [FastForward: Giacomoni et al., PPoPP 2008]; the consumer
// tells how far it is now and then only [Lamport 1983; lazy indices as in B-Queue, Wang et al.,
// IJPP 2013]. Where it has kept up, the producer goes back to the beginning of the bytes: those
// are in the caches.
struct RingShape {
  uint32_t cells = 256;              // a power of two
  uint32_t bulk_bytes = 512 * 1024;  // a power of two
  uint32_t chunk_bytes =
      128 * 1024;  // largest payload, a multiple of 64, at most half of the above

  // Throws CommError(kInvalidArgument) unless it is as said.
  void require_valid() const;
  size_t bytes() const noexcept;
  friend bool operator==(const RingShape&, const RingShape&) = default;
};

inline constexpr size_t kInlineBytes = 24;

struct alignas(64) RingCell {
  // 1 + the frame's number, once it is whole; and whether its payload is at the beginning, though
  // there would be room behind the last one.
  std::atomic<uint64_t> stamp;
  static constexpr uint64_t kRewinds = uint64_t{1} << 63;
  Frame frame;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(RingCell) == 64);

// Written by the consumer; on a line pair of its own, away from the adjacent line prefetcher.
struct alignas(128) ConsumerPosition {
  std::atomic<uint64_t> cells;
  std::atomic<uint64_t> bulk;
};

// Where both ends find the ring; the memory starts out as zeroes.
struct RingMemory {
  ConsumerPosition* consumed = nullptr;
  RingCell* cells = nullptr;
  std::byte* bulk = nullptr;
  RingShape shape = {};
  // `at` holds shape.byte_view(), aligned to 128.
  static RingMemory at_address(std::byte* at, const RingShape& shape) noexcept;
};

class RingProducer {
 public:
  explicit RingProducer(const RingMemory& memory) noexcept : ring_(memory) {}
  // False: no room now. frame.bytes is what the pieces hold, at most a chunk. `fences`: nothing
  // that follows is read before the frame can be seen.
  bool push(const Frame& frame, std::span<const ConstBytes> pieces, bool fences = true) noexcept;
  // Since the last refused push the consumer has made room.
  bool has_room_changed() const noexcept;

 private:
  void update_free_space() noexcept;
  bool may_rewind() noexcept;
  std::byte* reserve(uint32_t bytes, bool& rewinds) noexcept;
  RingMemory ring_;
  uint64_t next_ = 0, bulk_next_ = 0;          // written so far
  uint64_t cells_freed_ = 0, bulk_freed_ = 0;  // as last seen
  uint64_t rewound_ = 0;                       // where bulk_next_ was put: all before is free
};

class RingConsumer {
 public:
  explicit RingConsumer(const RingMemory& memory) noexcept : ring_(memory) {}
  // Something can be taken.
  bool is_ready() const noexcept;

  enum class RingFront : uint8_t { kEmpty, kFrame, kCorrupted };
  // The oldest frame and its payload, valid until pop(). The frame is a copy: the producer cannot
  // change it after the check that its payload lies in the ring.
  RingFront front(Frame& frame, ConstBytes& payload) noexcept;
  void pop() noexcept;
  // Tells the producer about the room there is, if it is worth it; true if it was told.
  bool publish() noexcept;

 private:
  RingMemory ring_;
  uint64_t next_ = 0, bulk_next_ = 0;  // taken so far
  uint64_t bulk_after_ = 0;            // where the payload in front ends
  uint64_t published_ = 0, bulk_published_ = 0;
};

}  // namespace torch::comms::transport::shm
