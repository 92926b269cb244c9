#pragma once

#include <cstdint>

#include "transport/protocol/remote_read.hpp"

namespace torch::comms::transport::shm {

// One copy between processes [process_vm_readv(2), Linux 3.2], without the other side's doing.
enum class CmaResult : uint8_t { kDone, kForbidden, kClosed, kPeerExited, kUnreadable };

// Copies into or from `address` of process `pid`, if the word at `key_address` there is `key`: the
// owner clears it when it closes the memory. kClosed: it is not, or the memory is not there.
// kPeerExited: the process is not. kForbidden: the system does not let us. What is written goes in
// parts, and the word is looked at before each: so much may be, after it was cleared.
inline constexpr size_t kMaxBytesAfterClose = size_t{1} << 20;
CmaResult cma_read(int pid, uint64_t address, Bytes into, uint64_t key_address,
                   uint32_t key) noexcept;
CmaResult cma_write(int pid, uint64_t address, ConstBytes from, uint64_t key_address,
                    uint32_t key) noexcept;

// Copies what follows byte `offset` of a message that process `pid` offers to `into`, of at most
// Offer::kMaxSegments pieces, whether it stands or not. kUnreadable: the system cannot read this
// memory for us.
CmaResult cma_read_message(int pid, const RemoteReadDescriptor& offer, uint64_t offset,
                           std::span<const Bytes> into) noexcept;

// Whether that memory is open, and copies are allowed: kNoFinish.
CmaResult cma_probe(int pid, uint64_t key_address, uint32_t key) noexcept;

// The system lets us copy from that process, or it has ended.
bool is_cma_allowed(int pid) noexcept;

// The system call exists and works on this process itself.
bool is_cma_available() noexcept;

}  // namespace torch::comms::transport::shm
