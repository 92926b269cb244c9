#pragma once

#include <cstdint>

#include "base/handles.hpp"
#include "transport/endpoint.hpp"
#include "transport/shm/ring.hpp"
#include "transport/unix_socket.hpp"

namespace torch::comms::transport::shm {

// The one packet that a connecting rank sends, with the segment's descriptor.
struct Hello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t spare = 0;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport it means
  Secret job = {};
  RingShape shape = {};

  static constexpr uint32_t kMagic = 0x4d485354;  // "TSHM"
  static constexpr uint16_t kVersion = 4;         // of the segment, too
};

// False, and errno.
bool send_hello(int socket, const Hello& hello, int descriptor) noexcept;
// As read_packet(); a version that is not this one is kWrong, too.
Arrival read_hello(int socket, Hello& hello, base::FileDescriptor& descriptor) noexcept;

// Readable when the process has ended; empty where the system has no such descriptors.
base::FileDescriptor watch_process(int pid) noexcept;

}  // namespace torch::comms::transport::shm
