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

// kAsleep: the side sleeps and wants to be woken. kFences: between saying so and its last look at
// the rings it makes everybody pass a fence, so that whoever writes needs none of its own.
// kAttached: it has taken the segment, so that the end of its socket is its own end.
struct SleepFlags {
  static constexpr uint32_t kAsleep = 1, kFences = 2, kAttached = 4;
};

// The memory that two ranks share, with a ring in each direction. It has no name: it goes when both
// have let go of it, whatever becomes of them. Pages are only taken when they are used.
class ShmSegment {
 public:
  // Throws CommError(kResourceExhausted).
  static ShmSegment create(const RingShape& shape);
  // Over a descriptor that a peer sent. Throws CommError(kSizeMismatch) where it is not what
  // create() makes: it could shrink under us, or is smaller than it says.
  static ShmSegment adopt(base::FileDescriptor file, const RingShape& shape);

  const base::FileDescriptor& file() const noexcept { return file_; }
  // The same memory, without the file.
  ShmSegment share() const { return {mapping_, shape_}; }
  // The ring that side 0 or 1 writes to.
  RingMemory ring(int writer) const noexcept;
  // What a side says of its sleep: bits of SleepFlags.
  std::atomic<uint32_t>& sleep_flags(int side) const noexcept;
  // Where a side waits: Seating.
  CoreBalancer::CoreSlot& core_slot(int side) const noexcept;
  // Of the offers of a side.
  ReadValidityWords::Words& read_validity_words(int side) const noexcept;
  // All of the above lies in it.
  std::shared_ptr<const base::Mapping> memory() const noexcept { return mapping_; }

 private:
  ShmSegment(base::FileDescriptor file, const RingShape& shape);
  ShmSegment(std::shared_ptr<const base::Mapping> mapping, const RingShape& shape)
      : mapping_(std::move(mapping)), shape_(shape) {}

  base::FileDescriptor file_;
  std::shared_ptr<const base::Mapping> mapping_;
  RingShape shape_;
};

// Zeroed memory behind a descriptor that cannot shrink or grow any more.
// Throws CommError(kResourceExhausted): what this process cannot have, for whatever reason.
base::FileDescriptor create_memory(const char* name, uint64_t size);
// Takes the pages now where the system could refuse one at its first use, which would end the
// process by SIGBUS: where it promises all memory ahead (vm.overcommit_memory=2). Else it does
// nothing.
// Throws CommError(kResourceExhausted).
void reserve_memory(const base::FileDescriptor& file, uint64_t size, uint64_t offset = 0);
// `offset` is a multiple of the page size. Throws CommError(kResourceExhausted).
base::Mapping map_memory(const base::FileDescriptor& file, uint64_t size, uint64_t offset = 0);

}  // namespace torch::comms::transport::shm
