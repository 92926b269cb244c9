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

// Why a rank has no memory for the link with another one; "" where it has. Cut where it is longer.
using ShmRefusal = std::array<char, 320>;
ShmRefusal make_refusal(std::string_view why) noexcept;
std::string refusal_text(const ShmRefusal& refusal);

// The one packet that a connecting rank sends, with the segment's descriptor: or without one, and
// with the reason why there is no segment.
struct ShmHello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t spare = 0;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport it means
  Secret job = {};
  RingShape shape = {};
  ShmRefusal refusal = {};

  static constexpr uint32_t kMagic = 0x4d485354;  // "TSHM"
  static constexpr uint16_t kVersion = 5;         // of the segment, too
};

// `descriptor` -1: none. False, and errno.
bool send_hello(int socket, const ShmHello& hello, int descriptor) noexcept;
// As read_packet(); a version that is not this one is kWrong, too, and so is a packet that has
// neither a descriptor nor a refusal, or both.
PacketStatus read_hello(int socket, ShmHello& hello, base::FileDescriptor& descriptor) noexcept;

// Readable when the process has ended; empty where the system has no such descriptors.
base::FileDescriptor open_pidfd(int pid) noexcept;

}  // namespace torch::comms::transport::shm
