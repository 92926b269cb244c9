#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/protocol/peer_protocol.hpp"
#include "transport/protocol/region_table.hpp"
#include "transport/transport.hpp"

namespace torch::comms::transport {

// A link whose peers talk in frames: everything but how channels come to be, and what the link can
// do more directly. See Transport for the contract.
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
  bool try_receive(int peer, uint32_t stream, const ReceiveTarget& landing, uint32_t tag) override;
  bool has_message(int peer, uint32_t stream) const noexcept final;
  void close_streams(uint32_t first, uint32_t last, Errc error) final;

  std::unique_ptr<MemoryRegion> register_memory(Bytes bytes) override;
  // Memory that only frames reach, where the link has no better.
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

  // Begins to make a channel to `peer`, unless it has one; open() follows when it is there.
  virtual void start_connection(int peer, const Endpoint& endpoint) = 0;
  // After start_connection(), or where the peer was first to connect: what its endpoint says
  // beside.
  virtual void on_endpoint(int peer, const Endpoint& endpoint) noexcept {
    static_cast<void>(peer), static_cast<void>(endpoint);
  }
  // True if anything moved.
  virtual bool progress_connections() noexcept { return false; }

  enum class DirectResult : uint8_t { kNo, kDone, kFailed };
  // What needs no frames. kNo: not this memory. kFailed: it is closed, or the peer has just failed.
  // In bounds.
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

  // Every operation ends, every channel closes; what was sent before has time to arrive while it
  // moves, and 0.2 s where it does not, 5 s at most.
  // For destructors: channels use what those destroy.
  void close_peers() noexcept;
  // After every channel was told of a sleep, before each is asked once more whether all is quiet.
  virtual void fence_peers() noexcept {}
  // After a sleep.
  virtual void on_wake() noexcept {}

  void open(int peer, std::unique_ptr<PeerConnection> channel);
  void fail(int peer, Errc code, const std::string& why) noexcept;
  // The peer, made if there is none. Throws CommError(kInvalidArgument) for ranks that cannot be.
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
  // nullptr: it is done. `received`: the stream of a receive.
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
  std::vector<PeerProtocol*> active_;                 // those that there are
  std::vector<int> opened_;
};

}  // namespace torch::comms::transport
