#pragma once

#include <atomic>
#include <cstdint>

#include "transport/handles.hpp"
#include "transport/shm/ring.hpp"

namespace torch::comms::transport::shm {

// The memory that two ranks share, with a ring in each direction. It has no name: it goes when both
// have let go of it, whatever becomes of them. Pages are only taken when they are used.
class Segment {
 public:
  // Throws CommError(kResourceExhausted, kSystem).
  static Segment create(const RingShape& shape);
  // Over a descriptor that a peer sent. Throws CommError(kMismatch) where it is not what create()
  // makes: it could shrink under us, or is smaller than it says.
  static Segment adopt(FileDescriptor file, const RingShape& shape);

  const FileDescriptor& file() const noexcept { return file_; }
  void close_file() noexcept { file_ = FileDescriptor(); }
  // The ring that side 0 or 1 writes to.
  RingMemory ring(int writer) const noexcept;
  // Not 0 while that side sleeps and wants to be woken.
  std::atomic<uint32_t>& asleep(int side) const noexcept;

 private:
  Segment(FileDescriptor file, const RingShape& shape);

  FileDescriptor file_;
  Mapping mapping_;
  RingShape shape_;
};

// Zeroed memory behind a descriptor that cannot shrink or grow any more.
// Throws CommError(kResourceExhausted, kSystem).
FileDescriptor create_memory(const char* name, uint64_t size);
Mapping map_memory(const FileDescriptor& file, uint64_t size);

}  // namespace torch::comms::transport::shm
