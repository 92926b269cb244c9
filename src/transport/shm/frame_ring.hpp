#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/protocol/frame.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport::shm {

// The sizes of one direction of a pair of ranks in shared memory. A ring has a queue of frames in
// cells of one cache line. Payloads that do not fit into a cell go into a ring of bytes. A cell is
// its own flag, so a small frame moves with one cache line [FastForward: Giacomoni et al., PPoPP
// 2008]. The consumer publishes its position only now and then [Lamport 1983; lazy indices as in
// B-Queue, Wang et al., IJPP 2013]. If the consumer has kept up, the producer returns to the
// beginning of the bytes, because these are in the caches.
struct RingShape {
  uint32_t cells = 256;              // a power of two
  uint32_t bulk_bytes = 512 * 1024;  // a power of two
  // Largest payload, a multiple of 64, at most half of bulk_bytes.
  uint32_t chunk_bytes = 128 * 1024;

  // Throws: CommError(kInvalidArgument) if a size breaks these rules.
  void require_valid() const;
  size_t bytes() const noexcept;
  friend bool operator==(const RingShape&, const RingShape&) = default;
};

inline constexpr size_t kInlineBytes = 24;

// One cache line with a frame, and with its payload if it has at most kInlineBytes bytes.
struct alignas(64) RingCell {
  // 1 + the frame's number, once the frame is whole. Bit kRewinds: the payload is at the beginning
  // of the bytes, though there was room behind the last one.
  std::atomic<uint64_t> stamp;
  static constexpr uint64_t kRewinds = uint64_t{1} << 63;
  Frame frame;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(RingCell) == 64);

// The position that the consumer publishes. It has a line pair of its own, away from the
// adjacent-line prefetcher.
struct alignas(128) ConsumerPosition {
  std::atomic<uint64_t> cells;
  std::atomic<uint64_t> bulk;
};

// The parts of a ring in memory, as both ends use them. The memory starts zeroed.
struct RingMemory {
  ConsumerPosition* consumed = nullptr;
  RingCell* cells = nullptr;
  std::byte* bulk = nullptr;
  RingShape shape = {};
  // `at` has shape.bytes() bytes and is aligned to 128.
  static RingMemory at_address(std::byte* at, const RingShape& shape) noexcept;
};

// The sending end of a ring.
class RingProducer {
 public:
  explicit RingProducer(const RingMemory& memory) noexcept : ring_(memory) {}
  // Appends a frame. frame.bytes is the size of all pieces, at most a chunk. `fences`: no later
  // read of this thread happens before the frame is visible.
  // Returns: false if there is no room now.
  bool push(const Frame& frame, std::span<const ConstBytes> pieces, bool fences = true) noexcept;
  // Returns: whether the consumer has made room since the last refused push().
  bool has_room_changed() const noexcept;

 private:
  void update_free_space() noexcept;
  bool may_rewind() noexcept;
  std::byte* reserve(uint32_t bytes, bool& rewinds) noexcept;
  RingMemory ring_;
  uint64_t next_ = 0, bulk_next_ = 0;          // written so far
  uint64_t cells_freed_ = 0, bulk_freed_ = 0;  // as last read
  uint64_t rewound_ = 0;  // bulk_next_ after the last rewind: all bytes before are free
};

// The receiving end of a ring.
class RingConsumer {
 public:
  explicit RingConsumer(const RingMemory& memory) noexcept : ring_(memory) {}
  // Returns: whether a frame is there.
  bool is_ready() const noexcept;

  enum class RingFront : uint8_t { kEmpty, kFrame, kCorrupted };
  // Reads the oldest frame and its payload, valid until pop(). The frame is a copy: the producer
  // cannot change it after the check that its payload lies in the ring.
  RingFront front(Frame& frame, ConstBytes& payload) noexcept;
  void pop() noexcept;
  // Publishes the free room to the producer, if it is worth it.
  // Returns: whether it was published.
  bool publish() noexcept;

 private:
  RingMemory ring_;
  uint64_t next_ = 0, bulk_next_ = 0;  // taken so far
  uint64_t bulk_after_ = 0;            // where the payload in front ends
  uint64_t published_ = 0, bulk_published_ = 0;
};

}  // namespace torch::comms::transport::shm
