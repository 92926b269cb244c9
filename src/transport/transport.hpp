#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "transport/connect/endpoint.hpp"
#include "transport/memory.hpp"
#include "transport/protocol/request.hpp"
#include "transport/waiting/wait_policy.hpp"

namespace torch::comms::transport {

class PeerConnection;

// Describes what a transport can do. It is known before the first call: no method answers "not
// implemented".
struct TransportCapabilities {
  bool maps_memory = false;         // peers can load and store memory from allocate()
  bool has_passive_target = false;  // put and get need no progress() of the target
  // put and get of registered memory copy once, and so do large messages where one copy is faster.
  bool has_single_copy = false;
  uint64_t eager_bytes = 0;  // bytes; up to this size a message leaves before its receive is posted
  uint32_t chunk_bytes = 0;  // bytes; larger messages move in chunks of this size
  std::string reason = {};   // why a capability is missing or was chosen
};

// kUnknown: connect() was not called and the peer has not connected. kConnecting: operations may be
// posted. kFailed: see failure().
enum class PeerState : uint8_t { kUnknown, kConnecting, kReady, kFailed };

// Why a peer is in state kFailed.
struct PeerFailure {
  Errc code = Errc::kPeerFailed;
  std::string reason;  // "rank 3: its process (pid 123) has exited"
};

// Moves messages and one-sided operations between this rank and its peers. Ranks are those of one
// communicator, which owns the transport.
//
// Messages are matched in order per (peer, stream): the n-th receive takes the n-th send. Streams
// never wait for each other. Small messages are eager: they leave within a credit, which bounds
// what the receiver keeps for receives that are not posted yet. A larger message waits until its
// receive is posted. So memory is bounded. A stream that was used costs a few hundred bytes until
// it is closed.
//
// Failures: a wrong call throws CommError(kInvalidArgument, kOutOfRange) before anything happens.
// kInvalidArgument is also the code for a peer that was never connected. Failures of peers or of
// the system end in requests: each request is done exactly once. Its error is kPeerFailed,
// kMismatch, kAborted, kForked, or kFinalized on a closed stream. The error is kResourceExhausted
// or kSystem where this rank cannot reach the peer. close_streams() and cancel() end requests with
// the error that their caller chooses. Operations with other peers continue. Small messages that a
// peer sent before it ended can still be received. The first progress() after an abort ends every
// open request with kAborted. The destructor ends open requests with kFinalized.
// Forked children: every new request is done with kForked; nothing of the parent process is
// touched.
// Threads: any, but one at a time. The transport has no thread: operations move only inside its
// calls. abort_signal().raise() may be called from any thread at any time.
class TC_API Transport {
 public:
  virtual ~Transport() = default;

  // Returns: "shm", "tcp" or "self", the word used in logs, traces and options.
  virtual std::string_view name() const noexcept = 0;
  virtual TransportCapabilities capabilities() const = 0;
  virtual const Endpoint& endpoint() const noexcept = 0;

  // Begins to connect to `peer`. Both sides call it, in any order. Operations may start at once.
  // Throws: CommError(kInvalidArgument) for an endpoint that this transport cannot reach; kForked
  // in a forked child; kResourceExhausted or kSystem if the system refuses.
  virtual void connect(int peer, const Endpoint& endpoint) = 0;
  virtual PeerState state(int peer) const noexcept = 0;
  // Returns: the peers with which a connection was made, in that order. They include peers that
  // connected before this rank called connect(). The list only grows.
  virtual std::span<const int> connected_peers() const noexcept = 0;
  // Returns: why `peer` is in state kFailed, else nullptr.
  virtual const PeerFailure* failure(int peer) const noexcept = 0;

  // Sends the bytes of `pieces`, one after the other, as one message. The receiver may divide the
  // message into other pieces. `pieces` and `consumer` must stay valid until the request is done.
  //
  // A send is done when its memory may be used again; the message need not have arrived. Order
  // after a send is done: a peer that receives a later small message has received the earlier
  // message, or its receive has begun. Sends to this rank are done on the peer's side, too, if this
  // rank had received them before it sent that small message.
  //
  // `tag` identifies the content of the message. A receive with another tag fails with kMismatch on
  // both sides and writes nothing; a receive that is smaller than its message fails with kMismatch
  // on both sides. For small messages only the receive fails.
  virtual void send(Request& request, int peer, uint32_t stream, std::span<const ConstBytes> pieces,
                    uint32_t tag = 0) = 0;
  virtual void send(Request& request, int peer, uint32_t stream, ConstBytes bytes,
                    uint32_t tag = 0) = 0;
  virtual void receive(Request& request, int peer, uint32_t stream, std::span<const Bytes> pieces,
                       uint32_t tag = 0) = 0;
  virtual void receive(Request& request, int peer, uint32_t stream, Bytes bytes,
                       uint32_t tag = 0) = 0;
  virtual void receive(Request& request, int peer, uint32_t stream, uint64_t capacity,
                       ReceiveSink& consumer, uint32_t tag = 0) = 0;

  // Inline eager: small messages without a request, for callers that poll. They take the same
  // sequence numbers as messages with a request, and the peer cannot tell the difference.
  // Returns: the largest size in bytes; 0 if this transport, or this peer now, has no inline eager
  // messages.
  virtual uint64_t inline_eager_bytes(int peer) const noexcept {
    static_cast<void>(peer);
    return 0;
  }
  // Sends or receives one inline eager message. May be called only where inline_eager_bytes() was
  // not 0; the connection may have failed since. The receive takes a message of exactly this size
  // and tag. It sees a message behind other frames only after progress().
  // Returns: false if nothing has happened: the caller tries again or uses send() or receive().
  virtual bool try_send(int peer, uint32_t stream, ConstBytes bytes, uint32_t tag) {
    static_cast<void>(peer), static_cast<void>(stream), static_cast<void>(bytes);
    static_cast<void>(tag);
    return false;
  }
  virtual bool try_receive(int peer, uint32_t stream, const ReceiveTarget& target, uint32_t tag) {
    static_cast<void>(peer), static_cast<void>(stream), static_cast<void>(target);
    static_cast<void>(tag);
    return false;
  }
  // Returns: whether a message from `peer` has arrived or was announced for which no receive was
  // posted. A receive that is posted now takes this message.
  virtual bool has_message(int peer, uint32_t stream) const noexcept = 0;

  // Ends the sends and receives of streams [first, last] with all peers with `error`; their memory
  // is free when this returns. Messages that arrive for these streams later are dropped, and their
  // credit is returned; later requests for them end with kFinalized. Other streams continue. Closed
  // streams cost no memory and cannot be opened again. The peers are not notified.
  virtual void close_streams(uint32_t first, uint32_t last, Errc error) = 0;

  // Registers `bytes` so that peers with the handle can put and get. Peers of this host can map
  // memory of a file that this process has mapped shared. For that the process must hold the file
  // open, or the file must still have its name.
  // Throws: CommError(kSystem).
  virtual std::unique_ptr<MemoryRegion> register_memory(Bytes bytes) = 0;
  // Returns: zeroed memory that peers of this host can map, if the transport has `maps_memory`.
  // Throws: CommError(kResourceExhausted, kSystem).
  virtual std::unique_ptr<MemoryRegion> allocate(uint64_t size) = 0;
  // Makes a peer's memory usable for put, get and signal.
  // Throws: CommError(kInvalidArgument) for memory of a rank that was never connected.
  virtual std::unique_ptr<RemoteMemory> import(const MemoryHandle& handle) = 0;

  // Writes `from` into the peer's memory. The request is done when `from` may be used again. If the
  // owner has closed the memory, the put or the next flush fails with kMismatch. A mapping of
  // closed memory stays valid as long as it lives here; other processes do not see writes to it.
  // Throws: CommError(kOutOfRange) for a range outside of the region.
  virtual void put(Request& request, const RemoteMemory& to, uint64_t offset, ConstBytes from) = 0;
  // Reads the peer's memory. The request is done when `into` holds the data. If the owner has
  // closed memory that is not mapped here, the get fails with kMismatch.
  // Throws: like put().
  virtual void get(Request& request, const RemoteMemory& from, uint64_t offset, Bytes into) = 0;
  // Changes the counter at `offset`, whose address must be a multiple of 8. A process that sees the
  // change also sees what this rank put to that peer before. The signal is lost if the peer has
  // failed or after an abort. Closed memory: as for put().
  // Throws: CommError(kOutOfRange) like put(); kInvalidArgument for a wrong alignment.
  virtual void signal(const RemoteMemory& to, uint64_t offset, uint64_t amount, CounterOp op) = 0;
  // Flushes to `peer`: the request is done when all earlier puts and signals to that peer are
  // visible there. kMismatch: the peer had closed memory of some of them.
  virtual void flush(Request& request, int peer) = 0;
  // Ends a put, flush, send or receive with `error`, if it is not done; its memory is free when
  // this returns. Gets cannot be cancelled. What a put has not sent is never written, and later
  // signals or flushes do not wait for it. A send or receive may be cancelled only if the peer has
  // no matching operation and never will have one.
  virtual void cancel(Request& request, Errc error) = 0;

  // Makes progress on all connections without blocking.
  // Returns: whether anything moved.
  virtual bool progress() noexcept = 0;
  // Makes progress like progress(), for a caller that is about to call try_receive() for `stream`.
  // If the oldest frame from a peer is the next message of that stream, no progress is made with
  // this peer.
  virtual bool progress_except(uint32_t stream) noexcept {
    static_cast<void>(stream);
    return progress();
  }
  // Returns: whether peers may still wait for frames that are here, though no request says so. A
  // caller must not stop calling progress() before this is false.
  virtual bool has_unsent() const noexcept = 0;

  // For Waiter. After prepare_sleep() has returned true, event_fd() becomes readable when there is
  // something to do. The caller calls finish_sleep() whatever prepare_sleep() returned.
  virtual bool prepare_sleep() noexcept = 0;
  virtual void finish_sleep() noexcept = 0;
  virtual int event_fd() const noexcept = 0;
  // Makes the next progress() check everything, also what it checks only now and then, such as
  // whether a peer is still alive.
  virtual void poll_all_next() noexcept {}
  virtual AbortSignal& abort_signal() noexcept = 0;
  virtual const WaitPolicy& wait_policy() const noexcept = 0;
  // Replaces the wait policy that was made from local_ranks, if the caller knows better how many
  // ranks share this rank's cores. Must be called before connect().
  virtual void set_wait_policy(const WaitPolicy& policy) noexcept { static_cast<void>(policy); }

  // Makes progress on this transport until the request is done. After kTimeout the request is still
  // in flight: it must stay valid, and later progress() may complete it.
  // Returns: kDone if the request is done, ok or failed with its error. An abort ends the request.
  WaitResult wait(const Request& request, Deadline deadline);
  // Returns: the exception for a request that is done and not ok. `op` names the operation in its
  // text.
  CommError error(const Request& request, std::string_view op) const;
};

// Options that all transports share.
struct TransportOptions {
  int rank = 0;
  int size = 1;         // ranks of the communicator
  int local_ranks = 1;  // ranks on this host, which share its cores
  Secret job = {};
  std::shared_ptr<AbortSignal> abort = nullptr;  // nullptr: the transport makes its own
  uint64_t eager_bytes = 0;                      // bytes; 0: the transport's default
  // Bytes: the largest message of try_send(), and of send() where an eager message of that size is
  // faster. 0: the transport's default.
  uint64_t inline_eager_bytes = 0;
  // Bytes of eager messages that a peer keeps before their receives are posted. Equal on all ranks.
  uint64_t eager_credit = 1u << 20;
  // Wraps each new connection, for example to inject faults (fault.hpp). nullptr: connections are
  // used as they are.
  std::function<std::unique_ptr<PeerConnection>(int peer, std::unique_ptr<PeerConnection>)>
      wrap_connection = nullptr;
};

}  // namespace torch::comms::transport
