#include "transport/shm/handshake.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <torchcomms/base/error.hpp>

#include "base/system_error.hpp"

namespace torch::comms::transport::shm {
namespace {

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A leading zero makes the name abstract.
Address address_of(const std::string& name) {
  Address made;
  made.address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof made.address.sun_path - 1);
  std::memcpy(made.address.sun_path + 1, name.data(), length);
  made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return made;
}

base::FileDescriptor open_socket() noexcept {
  return base::FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

constexpr size_t kMaxDescriptors = 4;  // more than one is wrong, but must be closed
using Control = std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))>;

}  // namespace

base::FileDescriptor listen_at(const std::string& name) {
  auto socket = open_socket();
  const auto address = address_of(name);
  if (socket && ::bind(socket.get(), address.get(), address.size) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  throw base::system_error("a Unix socket for the ranks of this host");
}

base::FileDescriptor connect_to(const std::string& name) noexcept {
  auto socket = open_socket();
  const auto address = address_of(name);
  if (!socket || ::connect(socket.get(), address.get(), address.size) != 0) return {};
  return socket;
}

bool send_hello(int socket, const Hello& hello, int descriptor) noexcept {
  iovec data{const_cast<Hello*>(&hello), sizeof hello};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  auto* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof hello;
}

Greeting read_hello(int socket, Hello& hello, base::FileDescriptor& descriptor) noexcept {
  iovec data{&hello, sizeof hello};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Greeting::kNotYet : Greeting::kWrong;
  size_t received = 0;
  for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int file;
      std::memcpy(&file, reinterpret_cast<std::byte*>(header) + at, sizeof file);
      descriptor = base::FileDescriptor(file);
      ++received;
    }
  }
  const bool whole = size == sizeof hello && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  return whole && received == 1 && hello.magic == Hello::kMagic && hello.version == 1
             ? Greeting::kHello
             : Greeting::kWrong;
}

bool read_peer(int socket, int& pid, uint32_t& user) noexcept {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  pid = credentials.pid;
  user = credentials.uid;
  return true;
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
