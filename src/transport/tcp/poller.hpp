#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/os/handles.hpp"

namespace torch::comms::transport::tcp {

// Sockets and who wants to know about them [epoll(7)].
class Poller {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    virtual void on_ready(int socket, uint32_t events) = 0;
  };

  // Throws CommError(kResourceExhausted).
  Poller();
  // `events` as for epoll, level-triggered. Throws CommError(kResourceExhausted).
  void add(int socket, uint32_t events, Client& client);
  void change(int socket, uint32_t events) noexcept;
  // The same socket is another client's from now on.
  void replace_client(int socket, uint32_t events, Client& client) noexcept;
  void remove(int socket) noexcept;

  // Tells clients what is ready now; true if anything was. Clients may add and remove in there.
  bool poll();
  int event_fd() const noexcept { return epoll_.get(); }

 private:
  // What was added is told by its number from a later socket of the same descriptor.
  struct PolledSocket {
    Client* client;
    uint32_t number;
  };
  base::FileDescriptor epoll_;
  std::unordered_map<int, PolledSocket> clients_;
  uint32_t added_ = 0;
};

}  // namespace torch::comms::transport::tcp
