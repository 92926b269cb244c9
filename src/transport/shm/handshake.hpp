#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/handles.hpp"
#include "transport/endpoint.hpp"
#include "transport/shm/ring.hpp"
#include "transport/unix_socket.hpp"

namespace torch::comms::transport::shm {

// Why a rank has no memory for the link with another one; "" where it has. Cut where it is longer.
using Refusal = std::array<char, 320>;
Refusal refusal_of(std::string_view why) noexcept;
std::string why_of(const Refusal& refusal);

// The one packet that a connecting rank sends, with the segment's descriptor: or without one, and
// with the reason why there is no segment.
struct Hello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t spare = 0;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport it means
  Secret job = {};
  RingShape shape = {};
  Refusal refusal = {};

  static constexpr uint32_t kMagic = 0x4d485354;  // "TSHM"
  static constexpr uint16_t kVersion = 5;         // of the segment, too
};

// `descriptor` -1: none. False, and errno.
bool send_hello(int socket, const Hello& hello, int descriptor) noexcept;
// As read_packet(); a version that is not this one is kInvalid, too, and so is a packet that has
// neither a descriptor nor a refusal, or both.
PacketStatus read_hello(int socket, Hello& hello, base::FileDescriptor& descriptor) noexcept;

// Readable when the process has ended; empty where the system has no such descriptors.
base::FileDescriptor watch_process(int pid) noexcept;

}  // namespace torch::comms::transport::shm
