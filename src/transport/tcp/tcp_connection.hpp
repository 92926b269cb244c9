#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/connect/peer_connection.hpp"
#include "transport/tcp/keepalive.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/tcp/stream_socket.hpp"

namespace torch::comms::transport::tcp {

// A connection of several sockets: one for small frames, the others for chunks of large transfers.
// The end of a peer ends all sockets, each after its own data. So everything has arrived only when
// the last socket has ended.
class TcpConnection final : public PeerConnection,
                            public Poller::Client,
                            public KeepaliveWatch::KeepaliveClient {
 public:
  // The sockets must be in `poller` already. It and `keepalive` must outlive the connection.
  TcpConnection(std::vector<base::FileDescriptor> sockets, uint32_t chunk_bytes, Poller& poller,
                KeepaliveWatch& keepalive);
  ~TcpConnection() override;

  unsigned channels() const noexcept override { return static_cast<unsigned>(channels_.size()); }
  uint32_t max_payload() const noexcept override { return chunk_bytes_; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* frames_in_use) noexcept override;
  ReceiveStatus receive(FrameSink& sink) noexcept override;
  const std::string& error_text() const noexcept override { return error_text_; }
  Errc error_code() const noexcept override { return error_code_; }
  void cancel_writes(ConstBytes range) noexcept override;
  bool prepare_sleep(bool) noexcept override {
    return !has_ready_socket() && !is_at_end() && error_text_.empty();
  }

  bool is_delivered() const noexcept override;
  bool has_unflushed() const noexcept override;

  void on_ready(int socket, uint32_t events) override;
  bool check_keepalive(Keepalive::Time now, std::chrono::milliseconds limit) noexcept override;

 private:
  struct ConnectionSocket {
    StreamSocket stream;
    bool is_readable = false, is_watched_for_room = false;
    Keepalive keepalive = {};
  };
  bool has_ready_socket() const noexcept;
  // Returns: whether no more data will arrive, except data that sockets have received already.
  bool is_at_end() const noexcept;
  void watch(ConnectionSocket& socket) noexcept;

  std::vector<ConnectionSocket> channels_;
  uint32_t chunk_bytes_;
  Poller& poller_;
  KeepaliveWatch& keepalive_;
  uint64_t fork_generation_;
  std::string error_text_;
  Errc error_code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::tcp
