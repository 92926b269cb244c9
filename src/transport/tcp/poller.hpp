#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/os/handles.hpp"

namespace torch::comms::transport::tcp {

// Reports events of sockets to their clients [epoll(7)].
class Poller {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    virtual void on_ready(int socket, uint32_t events) = 0;
  };

  // Throws: CommError(kResourceExhausted).
  Poller();
  // Adds a socket. `events` are those of epoll, level-triggered.
  // Throws: CommError(kResourceExhausted).
  void add(int socket, uint32_t events, Client& client);
  void change(int socket, uint32_t events) noexcept;
  // Gives a socket to another client.
  void replace_client(int socket, uint32_t events, Client& client) noexcept;
  void remove(int socket) noexcept;

  // Calls on_ready() of the clients whose sockets are ready now. A client may add and remove
  // sockets in on_ready().
  // Returns: whether any socket was ready.
  bool poll();
  int event_fd() const noexcept { return epoll_.get(); }

 private:
  // The number distinguishes a socket from a later one with the same descriptor.
  struct PolledSocket {
    Client* client;
    uint32_t number;
  };
  base::FileDescriptor epoll_;
  std::unordered_map<int, PolledSocket> clients_;
  uint32_t added_ = 0;
};

}  // namespace torch::comms::transport::tcp
