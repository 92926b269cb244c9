#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/protocol/peer_protocol.hpp"
#include "transport/protocol/region_table.hpp"
#include "transport/transport.hpp"

namespace torch::comms::transport {

// A transport whose peers exchange frames. It implements everything except how connections are made
// and what a transport can do without frames. The contract is that of Transport.
class FramedTransport : public Transport {
 public:
  ~FramedTransport() override;

  const Endpoint& endpoint() const noexcept override { return endpoint_; }
  void connect(int peer, const Endpoint& endpoint) final;
  PeerState state(int peer) const noexcept final;
  std::span<const int> connected_peers() const noexcept final { return opened_; }
  const PeerFailure* failure(int peer) const noexcept final;

  void send(Request& request, int peer, uint32_t stream, std::span<const ConstBytes> pieces,
            uint32_t tag) final;
  void send(Request& request, int peer, uint32_t stream, ConstBytes bytes, uint32_t tag) final;
  void receive(Request& request, int peer, uint32_t stream, std::span<const Bytes> pieces,
               uint32_t tag) final;
  void receive(Request& request, int peer, uint32_t stream, Bytes bytes, uint32_t tag) final;
  void receive(Request& request, int peer, uint32_t stream, uint64_t capacity,
               ReceiveSink& consumer, uint32_t tag) final;
  uint64_t inline_eager_bytes(int peer) const noexcept override;
  bool try_send(int peer, uint32_t stream, ConstBytes bytes, uint32_t tag) override;
  bool try_receive(int peer, uint32_t stream, const ReceiveTarget& target, uint32_t tag) override;
  bool has_message(int peer, uint32_t stream) const noexcept final;
  void close_streams(uint32_t first, uint32_t last, Errc error) final;

  std::unique_ptr<MemoryRegion> register_memory(Bytes bytes) override;
  // Allocates memory that only frames reach; a transport that has better memory overrides this.
  std::unique_ptr<MemoryRegion> allocate(uint64_t size) override;
  std::unique_ptr<RemoteMemory> import(const MemoryHandle& handle) override;
  void put(Request& request, const RemoteMemory& to, uint64_t offset, ConstBytes from) final;
  void get(Request& request, const RemoteMemory& from, uint64_t offset, Bytes into) final;
  void signal(const RemoteMemory& to, uint64_t offset, uint64_t amount, CounterOp op) final;
  void flush(Request& request, int peer) final;
  void cancel(Request& request, Errc error) final;

  bool progress() noexcept final;
  bool progress_except(uint32_t stream) noexcept final;
  bool has_unsent() const noexcept final;
  bool prepare_sleep() noexcept final;
  void finish_sleep() noexcept final;
  AbortSignal& abort_signal() noexcept final { return *abort_; }
  const WaitPolicy& wait_policy() const noexcept final { return wait_policy_; }
  void set_wait_policy(const WaitPolicy& policy) noexcept final { wait_policy_ = policy; }

 protected:
  explicit FramedTransport(TransportOptions options, Endpoint endpoint);

  // Begins to connect to `peer`, unless a connection exists. The transport calls open() when the
  // connection is ready.
  virtual void start_connection(int peer, const Endpoint& endpoint) = 0;
  // Reads the rest of the peer's endpoint. Called after start_connection(), or where the peer
  // connected first.
  virtual void on_endpoint(int peer, const Endpoint& endpoint) noexcept {
    static_cast<void>(peer), static_cast<void>(endpoint);
  }
  // Makes progress on connections that are being made.
  // Returns: whether anything moved.
  virtual bool progress_connections() noexcept { return false; }

  enum class DirectResult : uint8_t { kNo, kDone, kFailed };
  // Carries out a put, get or signal without frames. The range is inside the region.
  // Returns: kNo if this memory needs frames; kFailed if the memory is closed or the peer has just
  // failed.
  virtual DirectResult put_directly(const RemoteMemory&, uint64_t, ConstBytes) noexcept {
    return DirectResult::kNo;
  }
  virtual DirectResult get_directly(const RemoteMemory&, uint64_t, Bytes) noexcept {
    return DirectResult::kNo;
  }
  virtual DirectResult signal_directly(const RemoteMemory&, uint64_t, uint64_t,
                                       CounterOp) noexcept {
    return DirectResult::kNo;
  }

  // Ends every operation and closes every connection. Destructors of derived classes call it,
  // because connections use members of those classes.
  // Blocks: while data that was sent before still moves, until 0.2 s without movement, 5 s at most.
  void close_peers() noexcept;
  // Called between the two calls of PeerProtocol::prepare_sleep(): after every connection has
  // announced the sleep, before each one is checked again.
  virtual void fence_peers() noexcept {}
  // Called after a sleep.
  virtual void on_wake() noexcept {}

  void open(int peer, std::unique_ptr<PeerConnection> peer_connection);
  void fail(int peer, Errc code, const std::string& why) noexcept;
  // Returns: the peer; the first call makes it.
  // Throws: CommError(kInvalidArgument) for a rank outside of the communicator.
  PeerProtocol& peer_of(int peer);
  PeerConnection* connection(int peer) noexcept;
  bool forked() const noexcept;

  TransportOptions options_;
  Endpoint endpoint_;
  std::shared_ptr<RegionTable> regions_;

 private:
  void drain_before_close() noexcept;
  template <class Step>
  bool for_active_peers(const Step& step) noexcept;
  // Starts a request. `received`: the stream of a receive.
  // Returns: the peer; nullptr if the request is done already.
  PeerProtocol* begin(Request& request, Request::Kind kind, int peer,
                      std::optional<uint32_t> received = std::nullopt);
  PeerProtocol& require_peer(int peer) const;
  void begin_receive(Request& request, int peer, uint32_t stream, uint32_t tag);
  void begin_send(Request& request, int peer, uint32_t stream, uint32_t tag);
  static void require_inside(const RemoteMemory& memory, uint64_t offset, uint64_t size);

  std::shared_ptr<AbortSignal> abort_;
  WaitPolicy wait_policy_;
  uint64_t fork_generation_;
  bool aborted_ = false;
  ClosedStreams closed_;
  std::vector<std::unique_ptr<PeerProtocol>> peers_;  // by rank
  std::vector<PeerProtocol*> active_;                 // peers that exist
  std::vector<int> opened_;
};

}  // namespace torch::comms::transport
