#pragma once

#include <cstdint>

#include "transport/protocol/remote_read.hpp"

namespace torch::comms::transport::shm {

// The outcome of a copy between processes by process_vm_readv(2) (CMA, Linux 3.2), which needs
// nothing from the other process. kClosed: the memory is closed or unmapped. kPeerExited: the
// process has exited. kForbidden: the system does not permit the copy. kUnreadable: the system
// cannot read this memory for another process.
enum class CmaResult : uint8_t { kDone, kForbidden, kClosed, kPeerExited, kUnreadable };

// Bytes that cma_write() may still write after the owner has closed the memory.
inline constexpr size_t kMaxBytesAfterClose = size_t{1} << 20;

// Copies into or from `address` of process `pid`, if the word at `key_address` there is `key`; the
// owner clears the word when it closes the memory. Writes go in parts, with a check of the word
// before each part. So at most kMaxBytesAfterClose bytes may be written after the word was cleared.
CmaResult cma_read(int pid, uint64_t address, Bytes into, uint64_t key_address,
                   uint32_t key) noexcept;
CmaResult cma_write(int pid, uint64_t address, ConstBytes from, uint64_t key_address,
                    uint32_t key) noexcept;

// Copies the message that `offer` describes in process `pid`, from byte `offset` on, to `into`, at
// most RemoteReadDescriptor::kMaxSegments pieces. It does not check whether the descriptor is still
// valid.
// Returns: kUnreadable if the system cannot read this memory for this process.
CmaResult cma_read_message(int pid, const RemoteReadDescriptor& offer, uint64_t offset,
                           std::span<const Bytes> into) noexcept;

// Returns: kDone if the memory is open and copies are allowed.
CmaResult cma_probe(int pid, uint64_t key_address, uint32_t key) noexcept;

// Returns: whether the system permits copies from process `pid`; also true if it has exited.
bool is_cma_allowed(int pid) noexcept;

// Returns: whether the system call exists and works on this process itself.
bool is_cma_available() noexcept;

}  // namespace torch::comms::transport::shm
