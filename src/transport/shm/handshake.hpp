#pragma once

#include <cstdint>
#include <string>

#include "base/handles.hpp"
#include "transport/endpoint.hpp"
#include "transport/shm/ring.hpp"

namespace torch::comms::transport::shm {

// The one packet that a connecting rank sends, with the segment's descriptor.
struct Hello {
  uint32_t magic = kMagic;
  uint16_t version = 1;
  uint16_t spare = 0;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport it means
  Secret job = {};
  RingShape shape = {};

  static constexpr uint32_t kMagic = 0x4d485354;  // "TSHM"
};

// Sockets in the abstract namespace: nothing to remove, and gone with their process.
// Throws CommError(kResourceExhausted, kSystem).
base::FileDescriptor listen_at(const std::string& name);
// Not there, or refused: an empty one, and errno. EAGAIN: ask again, its queue is full.
base::FileDescriptor connect_to(const std::string& name) noexcept;

// False, and errno.
bool send_hello(int socket, const Hello& hello, int descriptor) noexcept;

enum class Greeting : uint8_t { kNotYet, kHello, kWrong };
// Reads one packet with one descriptor; anything else is kWrong, and its descriptors are closed.
Greeting read_hello(int socket, Hello& hello, base::FileDescriptor& descriptor) noexcept;

// The process at the other end: its number here, 0 if it has none, and its user. False: unknown.
bool read_peer(int socket, int& pid, uint32_t& user) noexcept;

// Readable when the process has ended; empty where the system has no such descriptors.
base::FileDescriptor watch_process(int pid) noexcept;

}  // namespace torch::comms::transport::shm
