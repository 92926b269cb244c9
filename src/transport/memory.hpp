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

// Describes registered memory of one rank, so that peers can put to it and get from it.
struct MemoryHandle {
  int32_t rank = -1;
  uint32_t region = 0;  // number in the table of the transport that made it
  // Random, so that a handle cannot be guessed and an old handle does not match a new region.
  uint32_t key = 0;
  // Of shared memory, in the owner's process; -1: private memory of the owner.
  int32_t descriptor = -1;
  uint64_t size = 0;
  uint64_t address = 0;      // in the owner's process
  uint64_t key_address = 0;  // in the owner's process: where the key is while the memory is open
  uint64_t file = 0;         // inode of shared memory
  uint64_t file_offset = 0;  // bytes; where in the file the memory begins

  friend bool operator==(const MemoryHandle&, const MemoryHandle&) = default;
};

inline constexpr size_t kMemoryHandleBytes = 64;
TC_API std::string serialize(const MemoryHandle& handle);
// Parses a serialized handle; `text` may be anything.
// Throws: CommError(kMismatch).
TC_API MemoryHandle parse_memory_handle(std::string_view text);

// Memory that peers may put to and get from while this object lives.
// Lifetime: must end before its transport.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual Bytes bytes() const noexcept = 0;
  virtual const MemoryHandle& handle() const noexcept = 0;
};

// A peer's registered memory, as this process can reach it.
struct RemoteMemory {
  MemoryHandle handle;
  std::shared_ptr<const base::Mapping> mapping = {};  // nullptr where it cannot be mapped
  uint64_t mapping_offset = 0;  // bytes; a mapping begins at a page, the memory need not

  // Returns: the peer's memory itself, for loads and stores; empty where it cannot be mapped. A
  // process that reads a counter that was signalled after a store sees the store.
  Bytes mapped() const noexcept {
    return mapping ? mapping->bytes().subspan(mapping_offset, handle.size) : Bytes{};
  }
};

// Reads a counter: an aligned 64-bit word in registered memory that only grows. Once a reader sees
// a value >= n, everything that its writer did before is visible.
inline uint64_t read_counter(const MemoryRegion& memory, uint64_t offset) noexcept {
  auto* word = reinterpret_cast<uint64_t*>(memory.bytes().data() + offset);
  // Sequentially consistent: a waiter reads the counter after it has announced that it is about to
  // sleep.
  return std::atomic_ref(*word).load(std::memory_order_seq_cst);
}

// How signal() changes a counter.
enum class CounterOp : uint8_t {
  kMax,    // raises the counter to at least this value; idempotent
  kAdd,    // adds; for counters that several ranks signal
  kStore,  // stores this value; for words that are not counters
};

// Changes a counter as signal() says, on either side of a connection.
void update_counter(std::byte* counter, uint64_t amount, CounterOp op) noexcept;

}  // namespace torch::comms::transport
