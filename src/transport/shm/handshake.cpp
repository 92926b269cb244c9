#include "transport/shm/handshake.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/utf8.hpp"

namespace torch::comms::transport::shm {

Refusal refusal_of(std::string_view why) noexcept {
  Refusal refusal{};
  std::ranges::copy(base::utf8_prefix(why, refusal.size() - 1), refusal.begin());
  return refusal;
}

std::string why_of(const Refusal& refusal) {
  return base::replace_invalid_utf8({refusal.data(), ::strnlen(refusal.data(), refusal.size())});
}

bool send_hello(int socket, const Hello& hello, int descriptor) noexcept {
  return send_packet(socket, std::as_bytes(std::span(&hello, 1)), descriptor);
}

PacketStatus read_hello(int socket, Hello& hello, base::FileDescriptor& descriptor) noexcept {
  const auto arrival =
      read_packet(socket, std::as_writable_bytes(std::span(&hello, 1)), descriptor);
  if (arrival != PacketStatus::kPacket && arrival != PacketStatus::kWithoutDescriptor)
    return arrival;
  const bool ours = hello.magic == Hello::kMagic && hello.version == Hello::kVersion;
  const bool refuses = hello.refusal[0] != 0;
  return ours && refuses == (arrival == PacketStatus::kWithoutDescriptor) ? arrival
                                                                          : PacketStatus::kInvalid;
}

base::FileDescriptor watch_process(int pid) noexcept {
#ifdef SYS_pidfd_open
  // Such descriptors are closed on exec by themselves. Our own process needs no watching.
  if (pid > 0 && pid != ::getpid())
    return base::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#endif
  return {};
}

}  // namespace torch::comms::transport::shm
