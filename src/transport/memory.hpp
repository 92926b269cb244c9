#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport {

// What a rank tells others about memory of its own, so that they can put to it and get from it.
struct MemoryHandle {
  int32_t rank = -1;
  uint32_t region = 0;  // in the transport that made it
  uint32_t key = 0;     // random: a handle is not guessed, and an old one does not fit a new region
  int32_t descriptor = -1;  // of shared memory, in the owner's process; -1: memory of its own
  uint64_t size = 0;
  uint64_t address = 0;      // in the owner's process
  uint64_t key_address = 0;  // there, the key, while the memory is open
  uint64_t file = 0;         // inode of shared memory
  uint64_t file_offset = 0;  // where in it the memory begins

  friend bool operator==(const MemoryHandle&, const MemoryHandle&) = default;
};

inline constexpr size_t kMemoryHandleBytes = 64;
TC_API std::string serialize(const MemoryHandle& handle);
// Any text. Throws CommError(kSizeMismatch).
TC_API MemoryHandle parse_memory_handle(std::string_view text);

// Memory that peers may put to and get from while this object lives. It must end before its
// transport does.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual Bytes bytes() const noexcept = 0;
  virtual const MemoryHandle& handle() const noexcept = 0;
};

// A peer's memory, as seen from here.
struct RemoteMemory {
  MemoryHandle handle;
  std::shared_ptr<const base::Mapping> mapping = {};  // nothing where it cannot be mapped
  uint64_t mapping_offset = 0;  // of the mapping: it begins at a page, the memory need not

  // The peer's memory itself, for loads and stores: changes are seen by whoever reads a counter
  // that was signalled after them. Empty where it cannot be mapped.
  Bytes mapped() const noexcept {
    return mapping ? mapping->bytes().subspan(mapping_offset, handle.size) : Bytes{};
  }
};

// Counters are aligned 64-bit words in registered memory that only grow. Reading one at >= n means
// that everything its writer did before is visible.
inline uint64_t read_counter(const MemoryRegion& memory, uint64_t offset) noexcept {
  auto* word = reinterpret_cast<uint64_t*>(memory.bytes().data() + offset);
  // Sequentially consistent: a waiter looks after it has said that it is about to sleep.
  return std::atomic_ref(*word).load(std::memory_order_seq_cst);
}

enum class CounterOp : uint8_t {
  kMax,    // to at least this value; twice is as good as once
  kAdd,    // for counters that several ranks signal
  kStore,  // for words that are no counters: to this value
};

// Throws nothing; how signal() changes a counter on either side of a link.
void update_counter(std::byte* counter, uint64_t amount, CounterOp op) noexcept;

}  // namespace torch::comms::transport
