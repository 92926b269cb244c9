#include "transport/shm/shm_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>

#include <torchcomms/base/error.hpp>

#include "base/os/file_size.hpp"
#include "base/os/system_error.hpp"

namespace torch::comms::transport::shm {
namespace {

struct alignas(128) SleepFlagsWord {
  std::atomic<uint32_t> bits;
  CoreBalancer::CoreSlot core_slot;
};

struct alignas(128) SideValidityWords {
  ReadValidityWords::Words words;
};

// Lies before the rings.
struct SegmentHeader {
  std::array<SleepFlagsWord, 2> sleep_flags;
  std::array<SideValidityWords, 2> read_validity;
};

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t segment_bytes(const RingShape& shape) { return sizeof(SegmentHeader) + 2 * shape.bytes(); }

SegmentHeader& header_of(const base::Mapping& mapping) noexcept {
  return *reinterpret_cast<SegmentHeader*>(mapping.bytes().data());
}

std::string describe_step(const char* step, uint64_t size) {
  return std::string(step) + " for " + std::to_string(size) + " bytes of shared memory";
}

// Throws kResourceExhausted, also for memory that a policy forbids (EPERM, EACCES, ENOSYS).
[[noreturn]] void fail(const char* step, uint64_t size) {
  const int error = errno;
  std::string why = base::system_error(error, describe_step(step, size)).why();
  if (error == EPERM || error == EACCES || error == ENOSYS)
    why +=
        ": a security policy (seccomp, AppArmor, SELinux) of the container or host forbids this "
        "call";
  if (error == ENOSPC || error == ENOMEM)
    why += ": end other programs, or raise the memory limit of the container or host";
  throw CommError(Errc::kResourceExhausted, why);
}

// Returns: whether the system commits all memory in advance. Then it may refuse a page of a file
// later. Otherwise a file without a name, which no mount limits, gets its pages like a heap.
bool is_overcommit_disabled() {
  std::ifstream setting("/proc/sys/vm/overcommit_memory");
  std::string mode;
  return std::getline(setting, mode) && mode == "2";
}

}  // namespace

base::FileDescriptor create_memory(const char* name, uint64_t size) {
  base::require_file_size(size, describe_step("ftruncate", size));
  base::FileDescriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) fail("memfd_create", size);
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) fail("ftruncate", size);
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) fail("sealing", size);
  return file;
}

void reserve_memory(const base::FileDescriptor& file, uint64_t size, uint64_t offset) {
  static const bool needed = is_overcommit_disabled();
  if (!needed || size == 0) return;
  int error = 0;
  do error = ::posix_fallocate(file.get(), static_cast<off_t>(offset), static_cast<off_t>(size));
  while (error == EINTR);
  errno = error;
  if (error != 0) fail("posix_fallocate", size);
}

base::Mapping map_memory(const base::FileDescriptor& file, uint64_t size, uint64_t offset) {
  auto* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) fail("mmap", size);
  return base::Mapping(at, size);
}

ShmSegment::ShmSegment(base::FileDescriptor file, const RingShape& shape)
    : file_(std::move(file)),
      mapping_(std::make_shared<const base::Mapping>(map_memory(file_, segment_bytes(shape)))),
      shape_(shape) {}

ShmSegment ShmSegment::create(const RingShape& shape) {
  shape.require_valid();
  auto file = create_memory("torchcomms-pair", segment_bytes(shape));
  reserve_memory(file, segment_bytes(shape));
  return ShmSegment(std::move(file), shape);
}

ShmSegment ShmSegment::adopt(base::FileDescriptor file, const RingShape& shape) {
  shape.require_valid();
  struct stat found{};
  const bool sealed = (::fcntl(file.get(), F_GET_SEALS) & kSeals) == kSeals;
  if (!sealed || ::fstat(file.get(), &found) != 0 ||
      static_cast<size_t>(found.st_size) != segment_bytes(shape))
    throw CommError(Errc::kMismatch,
                    "shared-memory handshake failed: the peer sent " +
                        (sealed ? "a segment of " + std::to_string(found.st_size) + " bytes"
                                : std::string("an unsealed segment")) +
                        ", expected a sealed one of " + std::to_string(segment_bytes(shape)) +
                        " bytes; all ranks of a host must run the same torchcomms version");
  return ShmSegment(std::move(file), shape);
}

RingMemory ShmSegment::ring(int writer) const noexcept {
  auto* at = mapping_->bytes().data() + sizeof(SegmentHeader);
  return RingMemory::at_address(at + static_cast<size_t>(writer) * shape_.bytes(), shape_);
}

std::atomic<uint32_t>& ShmSegment::sleep_flags(int side) const noexcept {
  return header_of(*mapping_).sleep_flags[static_cast<size_t>(side)].bits;
}

CoreBalancer::CoreSlot& ShmSegment::core_slot(int side) const noexcept {
  return header_of(*mapping_).sleep_flags[static_cast<size_t>(side)].core_slot;
}

ReadValidityWords::Words& ShmSegment::read_validity_words(int side) const noexcept {
  return header_of(*mapping_).read_validity[static_cast<size_t>(side)].words;
}

}  // namespace torch::comms::transport::shm
