#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/os/handles.hpp"
#include "transport/protocol/read_validity_words.hpp"
#include "transport/shm/frame_ring.hpp"
#include "transport/waiting/core_balancer.hpp"

namespace torch::comms::transport::shm {

// Bits by which one side of a segment announces its state. kAsleep: the side sleeps and wants to be
// woken. kFences: the side fences all processes between announcing a sleep and its last check of
// the rings, so a writer needs no fence of its own. kAttached: the side has taken the segment, so
// the end of its socket means that the side has ended.
struct SleepFlags {
  static constexpr uint32_t kAsleep = 1, kFences = 2, kAttached = 4;
};

// The memory that two ranks share, with a ring in each direction. It has no name: the system frees
// it when both ranks have unmapped it, also when they crash. Pages are taken only when they are
// used.
class ShmSegment {
 public:
  // Makes a segment.
  // Throws: CommError(kResourceExhausted).
  static ShmSegment create(const RingShape& shape);
  // Maps a segment from a descriptor that a peer sent.
  // Throws: CommError(kMismatch) if it is not what create() makes: its size is not sealed, or is
  // not the expected one. CommError(kResourceExhausted) if it cannot be mapped.
  static ShmSegment adopt(base::FileDescriptor file, const RingShape& shape);

  const base::FileDescriptor& file() const noexcept { return file_; }
  // Returns: a segment over the same memory, without the file.
  ShmSegment share() const { return {mapping_, shape_}; }
  // Returns: the ring that side 0 or 1 writes to.
  RingMemory ring(int writer) const noexcept;
  // Returns: the bits of SleepFlags that a side has set.
  std::atomic<uint32_t>& sleep_flags(int side) const noexcept;
  // Returns: the slot in which a side publishes the core on which it waits (CoreBalancer).
  CoreBalancer::CoreSlot& core_slot(int side) const noexcept;
  // Returns: the validity words of a side's descriptors.
  ReadValidityWords::Words& read_validity_words(int side) const noexcept;
  // Returns: the mapping that holds all of the above.
  std::shared_ptr<const base::Mapping> memory() const noexcept { return mapping_; }

 private:
  ShmSegment(base::FileDescriptor file, const RingShape& shape);
  ShmSegment(std::shared_ptr<const base::Mapping> mapping, const RingShape& shape)
      : mapping_(std::move(mapping)), shape_(shape) {}

  base::FileDescriptor file_;
  std::shared_ptr<const base::Mapping> mapping_;
  RingShape shape_;
};

// Returns: a descriptor of zeroed memory whose size is sealed.
// Throws: CommError(kResourceExhausted), also if a policy forbids the memory.
base::FileDescriptor create_memory(const char* name, uint64_t size);
// Takes the pages now if the system commits all memory in advance (vm.overcommit_memory=2). There
// the system could refuse a page at its first use, which would end the process by SIGBUS. Does
// nothing on other systems.
// Throws: CommError(kResourceExhausted).
void reserve_memory(const base::FileDescriptor& file, uint64_t size, uint64_t offset = 0);
// Maps memory of `file` for reading and writing. `offset` is a multiple of the page size.
// Throws: CommError(kResourceExhausted).
base::Mapping map_memory(const base::FileDescriptor& file, uint64_t size, uint64_t offset = 0);

}  // namespace torch::comms::transport::shm
