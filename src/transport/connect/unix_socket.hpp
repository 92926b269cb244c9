#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/os/handles.hpp"

// Packets with one descriptor each, between processes of one host. Sockets are in the abstract
// namespace: nothing to remove, and gone with their process.
namespace torch::comms::transport {

// Throws CommError(kResourceExhausted, kSystem).
base::FileDescriptor listen_at(const std::string& name);
// Not there, or refused: an empty one, and errno. EAGAIN: ask again, its queue is full.
base::FileDescriptor connect_to(const std::string& name) noexcept;

// `descriptor` -1: the packet goes without one. False, and errno.
bool send_packet(int socket, std::span<const std::byte> packet, int descriptor) noexcept;

enum class PacketStatus : uint8_t {
  kIncomplete,
  kPacket,
  kWithoutDescriptor,
  kDescriptorsExhausted,
  kInvalid
};
// Reads one packet that fills `packet`, with one descriptor. kWithoutDescriptor: it came without
// one. kDescriptorsExhausted: this process may have no more of them, and what came is lost.
// Anything else is kInvalid, and its descriptors are closed.
PacketStatus read_packet(int socket, std::span<std::byte> packet,
                         base::FileDescriptor& descriptor) noexcept;

// The process at the other end: its number here, 0 if it has none, and its user. False: unknown.
bool read_peer_credentials(int socket, int& pid, uint32_t& user) noexcept;

}  // namespace torch::comms::transport
