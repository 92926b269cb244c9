#include "base/net/listener.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/os/fork_descriptors.hpp"
#include "base/os/log.hpp"
#include "base/os/system_error.hpp"

namespace torch::comms::base {
namespace {

FileDescriptor accept_connection(int socket) noexcept {
  return FileDescriptor(::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}
// The spare descriptor may be of any kind: it is closed to make room for an accepted connection.
FileDescriptor take_spare() noexcept { return FileDescriptor(::eventfd(0, EFD_CLOEXEC)); }

}  // namespace

Listener::Listener(FileDescriptor socket) : socket_(std::move(socket)), spare_(take_spare()) {}

FileDescriptor Listener::accept() noexcept {
  if (!spare_) spare_ = take_spare();
  while (true) {
    auto connection = accept_connection(socket_.get());
    if (connection) {
      set_close_on_fork(connection.get());
      return connection;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (!is_resource_exhausted(errno) || !spare_) return {};
    const int error = errno;
    spare_ = {};
    const bool is_refused = static_cast<bool>(accept_connection(socket_.get()));
    spare_ = take_spare();
    if (!is_refused) return {};
    if (std::exchange(has_warned_, true)) continue;
    try {
      log(LogLevel::kWarning, system_error(error, "connections of peer ranks are refused").what());
    } catch (const std::exception&) {
      has_warned_ = false;  // out of memory for the text: warn next time
    }
  }
}

}  // namespace torch::comms::base
