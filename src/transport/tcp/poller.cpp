#include "transport/tcp/poller.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <string>

#include <torchcomms/base/error.hpp>

#include "base/os/system_error.hpp"

namespace torch::comms::transport::tcp {
namespace {

epoll_event event_for(int socket, uint32_t number, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(number) << 32 | static_cast<uint32_t>(socket);
  return event;
}

}  // namespace

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw base::system_error("epoll");
}

void Poller::add(int socket, uint32_t events, Client& client) {
  auto event = event_for(socket, ++added_, events);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0)
    throw base::system_error("epoll");
  clients_[socket] = {&client, added_};
}

void Poller::change(int socket, uint32_t events) noexcept {
  const auto found = clients_.find(socket);
  if (found == clients_.end()) return;
  auto event = event_for(socket, found->second.number, events);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event);
}

void Poller::replace_client(int socket, uint32_t events, Client& client) noexcept {
  change(socket, events);
  clients_.at(socket).client = &client;
}

void Poller::remove(int socket) noexcept {
  if (clients_.erase(socket) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

bool Poller::poll() {
  epoll_event events[32];
  const int count = ::epoll_wait(epoll_.get(), events, 32, 0);
  for (int i = 0; i < count; ++i) {
    // The client is looked up here, because the previous client may have removed this socket and
    // added another one with its descriptor.
    const int socket = static_cast<int>(events[i].data.u64 & UINT32_MAX);
    const auto found = clients_.find(socket);
    if (found != clients_.end() && found->second.number == events[i].data.u64 >> 32)
      found->second.client->on_ready(socket, events[i].events);
  }
  return count > 0;
}

}  // namespace torch::comms::transport::tcp
