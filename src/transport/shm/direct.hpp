#pragma once

#include <cstdint>

#include "transport/remote_read.hpp"

namespace torch::comms::transport::shm {

// One copy between processes [process_vm_readv(2), Linux 3.2], without the other side's doing.
enum class Copied : uint8_t { kDone, kForbidden, kGone, kEnded, kUnreadable };

// Copies into or from `address` of process `pid`, if the word at `key_address` there is `key`: the
// owner clears it when it closes the memory. kWithdrawn: it is not, or the memory is not there.
// kEnded: the process is not. kForbidden: the system does not let us. What is written goes in
// parts, and the word is looked at before each: so much may be, after it was cleared.
inline constexpr size_t kMostPastClosing = size_t{1} << 20;
Copied copy_from(int pid, uint64_t address, Bytes into, uint64_t key_address,
                 uint32_t key) noexcept;
Copied copy_to(int pid, uint64_t address, ConstBytes from, uint64_t key_address,
               uint32_t key) noexcept;

// Copies what follows byte `offset` of a message that process `pid` offers to `into`, of at most
// Offer::kMaxSegments pieces, whether it stands or not. kUnreadable: the system cannot read this
// memory for us.
Copied copy_offered(int pid, const RemoteReadDescriptor& offer, uint64_t offset,
                    std::span<const Bytes> into) noexcept;

// Whether that memory is open, and copies are allowed: kDone.
Copied probe(int pid, uint64_t key_address, uint32_t key) noexcept;

// The system lets us copy from that process, or it has ended.
bool may_copy(int pid) noexcept;

// The system call exists and works on this process itself.
bool can_copy() noexcept;

}  // namespace torch::comms::transport::shm
