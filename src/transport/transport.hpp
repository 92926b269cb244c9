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

// What works on a link, known before the first call: no method answers "not implemented".
struct TransportCapabilities {
  bool maps_memory = false;         // memory from allocate() can be loaded and stored by peers
  bool has_passive_target = false;  // put and get need no progress_engine() of the other side
  bool has_single_copy = false;  // put and get of registered memory copy once, and large messages
                                 // where that takes less
  uint64_t eager_bytes = 0;      // up to this size a message leaves before its receive is there
  uint32_t chunk_bytes = 0;      // larger ones move in chunks of this size
  std::string reason = {};       // of what is missing or was chosen, in words
};

enum class PeerState : uint8_t { kUnknown, kConnecting, kReady, kFailed };

struct PeerFailure {
  Errc code = Errc::kPeerFailed;
  std::string reason;  // "rank 3: its process has ended"
};

// A wire between this rank and its peers; ranks are those of one communicator, which owns it.
//
// Messages are matched in order per (peer, stream): the n-th receive takes the n-th send. Streams
// never wait for each other. Small messages leave at once, within a credit that bounds what the
// receiver must keep for later; larger ones when their receive is there. So memory is bounded.
// A stream that was used costs a few hundred bytes until it is closed.
//
// Threads: one at a time, which also makes all the progress; abort_signal().raise() from anywhere.
// Failure: wrong calls throw CommError(kInvalidArgument, kOutOfRange) before anything happens. What
// the world does ends in requests: each is done exactly once, with kPeerFailed, kSizeMismatch,
// kAborted, kForked, or, where it is this rank that cannot reach the peer, kResourceExhausted and
// kSystem; peers that are fine go on. Small messages of a peer that came before it ended can still
// be received. After an abort everything is done with kAborted.
// Forked children: every request is done with kForked; nothing of the parent's is touched.
class TC_API Transport {
 public:
  virtual ~Transport() = default;

  // "shm", "tcp", "self": the word used in logs, traces and options.
  virtual std::string_view name() const noexcept = 0;
  virtual TransportCapabilities capabilities() const = 0;
  virtual const Endpoint& endpoint() const noexcept = 0;

  // Begins to connect; both sides call it, in any order. Operations may start at once. Throws
  // CommError: kInvalidArgument for an endpoint that this link cannot reach, kResourceExhausted.
  virtual void connect(int peer, const Endpoint& endpoint) = 0;
  virtual PeerState state(int peer) const noexcept = 0;
  // Peers with which a connection was made, in that order: also those that began it before this
  // rank asked for it. Only grows.
  virtual std::span<const int> connected_peers() const noexcept = 0;
  // Why `peer` is kFailed, else nullptr.
  virtual const PeerFailure* failure(int peer) const noexcept = 0;

  // A send is done when its memory may be used again: it need not have arrived. But whoever gets a
  // small message that its peer sent after that has the earlier one, or its receive has begun; and
  // of what the peer had received by then the sends are done. A receive that is too small for its
  // message fails on both sides (kSizeMismatch; small messages: on its own).
  // Pieces must outlive the request: a message is all of them, one after the other; its cuts into
  // pieces need not agree.
  // `tag` says what the message is meant to be: a receive that meets another tag fails on both
  // sides with kSizeMismatch, and writes nothing (small messages: on its own).
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

  // For who looks again at once: small messages without a request. They take their numbers as
  // those with one do, and their peers cannot tell. inline_eager_bytes(): the largest; 0: this
  // link, or this peer now, has none of that.
  virtual uint64_t inline_eager_bytes(int peer) const noexcept {
    static_cast<void>(peer);
    return 0;
  }
  // Only where inline_eager_bytes() was not 0; the link may have failed since. False: nothing has
  // happened, send() and receive() are to be used, or it is asked again. The receive takes a
  // message of just this size and tag, and sees what lies behind others only after
  // progress_engine().
  virtual bool try_send(int peer, uint32_t stream, ConstBytes bytes, uint32_t tag) {
    static_cast<void>(peer), static_cast<void>(stream), static_cast<void>(bytes);
    static_cast<void>(tag);
    return false;
  }
  virtual bool try_receive(int peer, uint32_t stream, const ReceiveTarget& landing, uint32_t tag) {
    static_cast<void>(peer), static_cast<void>(stream), static_cast<void>(landing);
    static_cast<void>(tag);
    return false;
  }
  // Whether a message has come from `peer`, or was announced, that no receive was posted for. A
  // receive posted now takes it.
  virtual bool has_message(int peer, uint32_t stream) const noexcept = 0;

  // Ends the sends and receives of streams [first, last], with all peers, with `error`: their
  // memory is free when this returns. What arrives for these streams from now on is dropped, and
  // its credit given back; later requests for them end with kFinalized. Other streams go on. They
  // cost nothing any more, and cannot be opened again. The peers are not told.
  virtual void close_streams(uint32_t first, uint32_t last, Errc error) = 0;

  // Opens `bytes` to peers that have the handle. Throws CommError(kSystem) where it cannot. Peers
  // of this host can map what lies in a file that this process has mapped shared, and that it holds
  // open or that has its name still.
  virtual std::unique_ptr<MemoryRegion> register_memory(Bytes bytes) = 0;
  // Zeroed memory that peers of this host can map. Throws CommError(kResourceExhausted).
  virtual std::unique_ptr<MemoryRegion> allocate(uint64_t size) = 0;
  // Throws CommError(kInvalidArgument) for memory of a rank that was not connected.
  virtual std::unique_ptr<RemoteMemory> import(const MemoryHandle& handle) = 0;

  // Done when `from` may be used again. Out of bounds: throws kOutOfRange. Memory that its owner
  // has closed since: this or the next flush fails with kSizeMismatch; what is mapped here lives on
  // as long as it is, seen by nobody else.
  virtual void put(Request& request, const RemoteMemory& to, uint64_t offset, ConstBytes from) = 0;
  // Done when `into` holds the data.
  virtual void get(Request& request, const RemoteMemory& from, uint64_t offset, Bytes into) = 0;
  // Changes the counter at `offset`, a multiple of 8. Whoever sees the change sees what this rank
  // put to that peer before. Lost where the peer is.
  virtual void signal(const RemoteMemory& to, uint64_t offset, uint64_t amount, CounterOp op) = 0;
  // Done when everything put and signalled to `peer` before is visible there.
  virtual void flush(Request& request, int peer) = 0;
  // Ends a put, flush, send or receive that may not be done, with `error`: its memory is free when
  // this returns. Of a put: what it has not sent is never written, and no later signal or flush
  // waits for it. A send or receive: only where the peer has no partner for it, and never will.
  virtual void cancel(Request& request, Errc error) = 0;

  // Does what can be done now, without blocking; true if anything moved.
  virtual bool progress() noexcept = 0;
  // The same now and then, for who is about to take messages of a stream at once: where the next
  // thing that has come from a peer is one, it stays where it is, with what came after it.
  virtual bool progress_except(uint32_t stream) noexcept {
    static_cast<void>(stream);
    return progress();
  }
  // Something is still here that peers may be waiting for, though no request may say so: whoever
  // stops to call progress_engine() goes on until this is false.
  virtual bool has_unsent() const noexcept = 0;

  // For Waiter: after prepare_sleep() returned true, event_fd() becomes readable when there is
  // something to do; finish_sleep() follows in either case.
  virtual bool prepare_sleep() noexcept = 0;
  virtual void finish_sleep() noexcept = 0;
  virtual int event_fd() const noexcept = 0;
  // The next progress_engine() looks at everything, also at what it looks at now and then alone,
  // such as whether a peer is still there.
  virtual void poll_all_next() noexcept {}
  virtual AbortSignal& abort_signal() noexcept = 0;
  virtual const WaitPolicy& wait_policy() const noexcept = 0;
  // Where it is known better who shares this rank's cores than by local_ranks. Before any
  // connect().
  virtual void set_wait_policy(const WaitPolicy& policy) noexcept { static_cast<void>(policy); }

  // Progresses this link alone until the request is done: is_ok(), or failed with its error.
  // kTimeout leaves it in flight; only an abort ends it then.
  WaitResult wait(const Request& request, Deadline deadline);
  // The error of a request that is done and not ok, to be thrown. `op` is for its text.
  CommError error(const Request& request, std::string_view op) const;
};

// What all links are told.
struct TransportOptions {
  int rank = 0;
  int size = 1;         // ranks of the communicator
  int local_ranks = 1;  // of them on this host: how many share its cores
  Secret job = {};
  std::shared_ptr<AbortSignal> abort = nullptr;  // nothing: one of its own
  uint64_t eager_bytes = 0;                      // 0: what suits the link
  uint64_t inline_eager_bytes = 0;  // the same, of try_send(); of others where that is faster
  // Bytes of small messages that a peer keeps before their receives are there. Equal on all ranks.
  uint64_t eager_credit = 1u << 20;
  // Around each new channel, e.g. to inject faults (fault.hpp). None: the channel as it is.
  std::function<std::unique_ptr<PeerConnection>(int peer, std::unique_ptr<PeerConnection>)>
      wrap_connection = nullptr;
};

}  // namespace torch::comms::transport
