#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/peer_connection.hpp"
#include "transport/tcp/lane.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/tcp/silence.hpp"

namespace torch::comms::transport::tcp {

// A connection of several sockets: one for everything that is small, the others for chunks of large
// transfers. A peer that leaves, or dies, ends all of them in their order: only when the last one
// has ended has everything come.
class TcpChannel final : public PeerConnection,
                         public Poller::Client,
                         public SilenceWatch::Watched {
 public:
  // The sockets are in `poller` already. It and `silence` outlive the channel.
  TcpChannel(std::vector<base::FileDescriptor> sockets, uint32_t chunk_bytes, Poller& poller,
             SilenceWatch& silence);
  ~TcpChannel() override;

  unsigned channels() const noexcept override { return static_cast<unsigned>(lanes_.size()); }
  uint32_t max_payload() const noexcept override { return chunk_bytes_; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* borrowed) noexcept override;
  ReceiveStatus receive(FrameSink& sink) noexcept override;
  const std::string& error_text() const noexcept override { return broken_; }
  Errc error_code() const noexcept override { return code_; }
  void cancel_writes(ConstBytes range) noexcept override;
  bool prepare_sleep(bool) noexcept override {
    return !anything_ready() && !is_over() && broken_.empty();
  }

  bool is_delivered() const noexcept override;
  bool has_unflushed() const noexcept override;

  void on_ready(int socket, uint32_t events) override;
  bool look(Silence::Time now, std::chrono::milliseconds limit) noexcept override;

 private:
  struct Socket {
    Lane lane;
    bool readable = false, watched_for_room = false;
    Silence silence = {};
  };
  bool anything_ready() const noexcept;
  // Nothing more comes but what lanes have already.
  bool is_over() const noexcept;
  void watch(Socket& socket) noexcept;

  std::vector<Socket> lanes_;
  uint32_t chunk_bytes_;
  Poller& poller_;
  SilenceWatch& silence_;
  uint64_t fork_generation_;
  std::string broken_;
  Errc code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::tcp
