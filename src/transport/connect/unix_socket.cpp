#include "transport/connect/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/os/system_error.hpp"

namespace torch::comms::transport {
namespace {

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A leading zero makes the name abstract.
AbstractAddress address_of(const std::string& name) {
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof result.address.sun_path - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), length);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

base::FileDescriptor open_socket() noexcept {
  return base::FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

constexpr size_t kMaxDescriptors = 4;  // more than one is invalid, but all must be closed
using ControlBuffer = std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))>;

}  // namespace

base::FileDescriptor listen_at(const std::string& name) {
  auto socket = open_socket();
  const auto address = address_of(name);
  if (socket && ::bind(socket.get(), address.get(), address.size) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  throw base::system_error("cannot listen on a Unix socket for the ranks of this host");
}

base::FileDescriptor connect_to(const std::string& name) noexcept {
  auto socket = open_socket();
  const auto address = address_of(name);
  if (!socket || ::connect(socket.get(), address.get(), address.size) != 0) return {};
  return socket;
}

bool send_packet(int socket, std::span<const std::byte> packet, int descriptor) noexcept {
  iovec data{const_cast<std::byte*>(packet.data()), packet.size()};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

PacketStatus read_packet(int socket, std::span<std::byte> packet,
                         base::FileDescriptor& descriptor) noexcept {
  iovec data{packet.data(), packet.size()};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0)
    return errno == EAGAIN || errno == EINTR ? PacketStatus::kIncomplete : PacketStatus::kInvalid;
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
  const bool whole =
      size == static_cast<ssize_t>(packet.size()) && (message.msg_flags & MSG_TRUNC) == 0;
  const bool cut = (message.msg_flags & MSG_CTRUNC) != 0;
  // The control buffer had room for a descriptor, so the process has no free descriptor.
  if (whole && cut && received == 0) return PacketStatus::kDescriptorsExhausted;
  if (whole && !cut && received == 0) return PacketStatus::kWithoutDescriptor;
  return whole && !cut && received == 1 ? PacketStatus::kPacket : PacketStatus::kInvalid;
}

bool read_peer_credentials(int socket, int& pid, uint32_t& user) noexcept {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  pid = credentials.pid;
  user = credentials.uid;
  return true;
}

}  // namespace torch::comms::transport
