#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/os/handles.hpp"

// Unix sockets that carry packets with one descriptor each, between processes of one host. Socket
// names are in the abstract namespace: they need no removal and end with their process.
namespace torch::comms::transport {

// Listens at an abstract name.
// Throws: CommError(kResourceExhausted, kSystem).
base::FileDescriptor listen_at(const std::string& name);
// Connects to an abstract name.
// Returns: empty and errno if that failed. EAGAIN means that the listener's queue is full and the
// caller may retry.
base::FileDescriptor connect_to(const std::string& name) noexcept;

// Sends one packet. `descriptor` -1: without a descriptor.
// Returns: false and errno if that failed.
bool send_packet(int socket, std::span<const std::byte> packet, int descriptor) noexcept;

enum class PacketStatus : uint8_t {
  kIncomplete,
  kPacket,
  kWithoutDescriptor,
  kDescriptorsExhausted,
  kInvalid
};
// Reads one packet that fills `packet`, with one descriptor.
// Returns: kIncomplete if no packet is there; kWithoutDescriptor if the packet has no descriptor;
// kDescriptorsExhausted if this process has no free descriptor, and the packet is lost. Any other
// input is kInvalid, and its descriptors are closed.
PacketStatus read_packet(int socket, std::span<std::byte> packet,
                         base::FileDescriptor& descriptor) noexcept;

// Reads who is at the other end: the process in this PID namespace, 0 if it has no number here, and
// its user.
// Returns: false if that is unknown.
bool read_peer_credentials(int socket, int& pid, uint32_t& user) noexcept;

}  // namespace torch::comms::transport
