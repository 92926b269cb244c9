#include "transport/shm/frame_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include <torchcomms/base/error.hpp>

namespace torch::comms::transport::shm {
namespace {

// Distance from the beginning, in bytes, from which on it is worth a cache miss to check whether
// the consumer has kept up. Measured with four ranks on two cores, each with a ring of 512 KB to
// every peer: an all_to_all of blocks of 8 KB takes 13 to 15 us; without rewinding it takes 14 to
// 31 us.
constexpr uint64_t kWarm = 32u << 10;

constexpr uint64_t rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Returns: the first position from `next` on that is the beginning of the bytes.
constexpr uint64_t beginning(uint64_t next, uint64_t size) {
  return (next + size - 1) / size * size;
}

// Returns: where a payload begins so that it does not wrap around; both ends compute the same.
uint64_t place(uint64_t next, uint64_t bytes, uint64_t size) noexcept {
  const uint64_t offset = next % size;
  return offset + bytes > size ? next + (size - offset) : next;
}

void fence_stores([[maybe_unused]] std::atomic<uint64_t>& last) noexcept {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer has no fences
  last.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

void RingShape::require_valid() const {
  const bool is_valid = std::has_single_bit(cells) && cells >= 8 && cells <= 65536 &&
                        std::has_single_bit(bulk_bytes) && bulk_bytes >= 1024 &&
                        bulk_bytes <= (1u << 28) && chunk_bytes % 64 == 0 && chunk_bytes >= 256 &&
                        chunk_bytes <= bulk_bytes / 2 && chunk_bytes <= kMaxPayload;
  if (!is_valid)
    throw CommError(
        Errc::kInvalidArgument,
        "invalid ring: " + std::to_string(cells) + " cells, " + std::to_string(bulk_bytes) +
            " bytes, chunks of " + std::to_string(chunk_bytes) +
            " bytes; expected powers of two of 8 to 65536 cells and 1 KiB to 256 MiB, and chunks "
            "of 256 bytes to 1 MiB that are multiples of 64 and at most half of the bytes");
}

size_t RingShape::bytes() const noexcept {
  return sizeof(ConsumerPosition) + cells * sizeof(RingCell) + bulk_bytes;
}

RingMemory RingMemory::at_address(std::byte* at, const RingShape& shape) noexcept {
  RingMemory memory;
  memory.consumed = reinterpret_cast<ConsumerPosition*>(at);
  memory.cells = reinterpret_cast<RingCell*>(at + sizeof(ConsumerPosition));
  memory.bulk = at + sizeof(ConsumerPosition) + shape.cells * sizeof(RingCell);
  memory.shape = shape;
  return memory;
}

// Reads both positions, so that has_room_changed() compares with now.
void RingProducer::update_free_space() noexcept {
  cells_freed_ = ring_.consumed->cells.load(std::memory_order_acquire);
  bulk_freed_ = ring_.consumed->bulk.load(std::memory_order_acquire);
}

// Returns: whether no bytes are in use and the position is far enough from the beginning.
bool RingProducer::may_rewind() noexcept {
  if (bulk_next_ % ring_.shape.bulk_bytes < kWarm) return false;
  if (bulk_freed_ != bulk_next_) update_free_space();
  return bulk_freed_ == bulk_next_;
}

std::byte* RingProducer::reserve(uint32_t bytes, bool& rewinds) noexcept {
  const uint64_t size = ring_.shape.bulk_bytes, needed = rounded(bytes);
  rewinds = may_rewind();
  if (rewinds) rewound_ = bulk_next_ = beginning(bulk_next_, size);
  const auto used = [&](uint64_t end) { return end - std::max(bulk_freed_, rewound_); };
  const uint64_t begin = place(bulk_next_, needed, size);
  if (used(begin + needed) > size) {
    update_free_space();
    if (used(begin + needed) > size) return nullptr;
  }
  bulk_next_ = begin + needed;
  return ring_.bulk + begin % size;
}

bool RingProducer::push(const Frame& frame, std::span<const ConstBytes> pieces,
                        bool fences) noexcept {
  if (next_ - cells_freed_ >= ring_.shape.cells) {
    update_free_space();
    if (next_ - cells_freed_ >= ring_.shape.cells) return false;
  }
  auto& cell = ring_.cells[next_ % ring_.shape.cells];
  bool rewinds = false;
  auto* into = frame.bytes <= kInlineBytes ? cell.payload : reserve(frame.bytes, rewinds);
  if (into == nullptr) return false;
  for (const auto& piece : pieces) {
    if (!piece.empty()) std::memcpy(into, piece.data(), piece.size());
    into += piece.size();
  }
  cell.frame = frame;
  cell.stamp.store(++next_ | (rewinds ? RingCell::kRewinds : 0), std::memory_order_release);
  // Afterwards the producer checks whether the consumer sleeps. The consumer checks the stamp after
  // it has announced its sleep, so one of them sees the other.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (fences) fence_stores(cell.stamp);
  return true;
}

bool RingProducer::has_room_changed() const noexcept {
  return ring_.consumed->cells.load(std::memory_order_seq_cst) != cells_freed_ ||
         ring_.consumed->bulk.load(std::memory_order_seq_cst) != bulk_freed_;
}

bool RingConsumer::is_ready() const noexcept {
  const auto& cell = ring_.cells[next_ % ring_.shape.cells];
  return (cell.stamp.load(std::memory_order_seq_cst) & ~RingCell::kRewinds) == next_ + 1;
}

RingConsumer::RingFront RingConsumer::front(Frame& frame, ConstBytes& payload) noexcept {
  const auto& cell = ring_.cells[next_ % ring_.shape.cells];
  const uint64_t stamp = cell.stamp.load(std::memory_order_acquire);
  if ((stamp & ~RingCell::kRewinds) != next_ + 1) return RingFront::kEmpty;
  frame = cell.frame;
  bulk_after_ = bulk_next_;
  if (frame.bytes <= kInlineBytes) {
    payload = {cell.payload, frame.bytes};
    return RingFront::kFrame;
  }
  if (frame.bytes > ring_.shape.chunk_bytes) return RingFront::kCorrupted;
  const uint64_t size = ring_.shape.bulk_bytes, needed = rounded(frame.bytes);
  const bool rewinds = (stamp & RingCell::kRewinds) != 0;
  const uint64_t from = rewinds ? beginning(bulk_next_, size) : bulk_next_,
                 begin = place(from, needed, size);
  bulk_after_ = begin + needed;
  payload = {ring_.bulk + begin % size, frame.bytes};
  return RingFront::kFrame;
}

void RingConsumer::pop() noexcept {
  ++next_;
  bulk_next_ = bulk_after_;
}

bool RingConsumer::publish() noexcept {
  const bool bulk = bulk_next_ != bulk_published_;
  if (!bulk && next_ - published_ < ring_.shape.cells / 4) return false;
  if (bulk) ring_.consumed->bulk.store(bulk_next_, std::memory_order_seq_cst);
  ring_.consumed->cells.store(next_, std::memory_order_seq_cst);
  published_ = next_;
  bulk_published_ = bulk_next_;
  return true;
}

}  // namespace torch::comms::transport::shm
