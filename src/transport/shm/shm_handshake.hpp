#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/os/handles.hpp"
#include "transport/connect/endpoint.hpp"
#include "transport/connect/unix_socket.hpp"
#include "transport/shm/frame_ring.hpp"

namespace torch::comms::transport::shm {

// Why a rank has no memory for the segment; "" if it has. A longer text is truncated.
using ShmRefusal = std::array<char, 320>;
ShmRefusal make_refusal(std::string_view why) noexcept;
std::string refusal_text(const ShmRefusal& refusal);

// The one packet that a connecting rank sends, with the segment's descriptor; or without a
// descriptor and with the reason why there is no segment.
struct ShmHello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t spare = 0;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport that it wants to reach
  Secret job = {};
  RingShape shape = {};
  ShmRefusal refusal = {};

  static constexpr uint32_t kMagic = 0x4d485354;  // "TSHM"
  static constexpr uint16_t kVersion = 5;         // of the segment's layout, too
};

// `descriptor` -1: none.
// Returns: false and errno if sending failed.
bool send_hello(int socket, const ShmHello& hello, int descriptor) noexcept;
// Reads a hello by read_packet().
// Returns: as read_packet(). kInvalid also for another version, and for a packet with neither or
// both of a descriptor and a refusal.
PacketStatus read_hello(int socket, ShmHello& hello, base::FileDescriptor& descriptor) noexcept;

// Returns: a pidfd, which is readable when the process has exited; empty if the system has no
// pidfds.
base::FileDescriptor open_pidfd(int pid) noexcept;

}  // namespace torch::comms::transport::shm
