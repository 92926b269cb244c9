#include "transport/shm/handshake.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <span>

namespace torch::comms::transport::shm {

bool send_hello(int socket, const Hello& hello, int descriptor) noexcept {
  return send_packet(socket, std::as_bytes(std::span(&hello, 1)), descriptor);
}

Arrival read_hello(int socket, Hello& hello, base::FileDescriptor& descriptor) noexcept {
  const auto arrival =
      read_packet(socket, std::as_writable_bytes(std::span(&hello, 1)), descriptor);
  if (arrival != Arrival::kPacket) return arrival;
  return hello.magic == Hello::kMagic && hello.version == Hello::kVersion ? arrival
                                                                          : Arrival::kWrong;
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
