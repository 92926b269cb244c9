#include "transport/shm/shm_handshake.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/text/utf8.hpp"

namespace torch::comms::transport::shm {

ShmRefusal make_refusal(std::string_view why) noexcept {
  ShmRefusal refusal{};
  std::ranges::copy(base::utf8_prefix(why, refusal.size() - 1), refusal.begin());
  return refusal;
}

std::string refusal_text(const ShmRefusal& refusal) {
  return base::replace_invalid_utf8({refusal.data(), ::strnlen(refusal.data(), refusal.size())});
}

bool send_hello(int socket, const ShmHello& hello, int descriptor) noexcept {
  return send_packet(socket, std::as_bytes(std::span(&hello, 1)), descriptor);
}

PacketStatus read_hello(int socket, ShmHello& hello, base::FileDescriptor& descriptor) noexcept {
  const auto status = read_packet(socket, std::as_writable_bytes(std::span(&hello, 1)), descriptor);
  if (status != PacketStatus::kPacket && status != PacketStatus::kWithoutDescriptor) return status;
  const bool is_compatible = hello.magic == ShmHello::kMagic && hello.version == ShmHello::kVersion;
  const bool refuses = hello.refusal[0] != 0;
  return is_compatible && refuses == (status == PacketStatus::kWithoutDescriptor)
             ? status
             : PacketStatus::kInvalid;
}

base::FileDescriptor open_pidfd(int pid) noexcept {
#ifdef SYS_pidfd_open
  // A pidfd is close-on-exec by itself. This process's own end needs no pidfd.
  if (pid > 0 && pid != ::getpid())
    return base::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#endif
  return {};
}

}  // namespace torch::comms::transport::shm
