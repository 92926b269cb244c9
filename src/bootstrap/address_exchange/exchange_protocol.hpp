#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/address_exchange/bruck_rounds.hpp"
#include "bootstrap/address_exchange/exchange_frame.hpp"

namespace torch::comms::bootstrap {

// A time on a monotonic clock; the caller chooses its origin.
using Moment = std::chrono::nanoseconds;
inline constexpr Moment kNever = Moment::max();

// Timeouts and retry intervals of a rank; equal on all ranks.
struct ExchangeRetryPolicy {
  Moment timeout = std::chrono::seconds(30);                // of the whole exchange, from start()
  Moment connect_timeout = std::chrono::seconds(3);         // of one kRequest
  Moment initial_interval = std::chrono::milliseconds(20);  // doubles up to
  Moment max_interval = std::chrono::seconds(1);
  // A rank publishes a contact only while it listens there. After this many refusals its process is
  // assumed to have ended.
  int max_refusals = 5;
  // How long a rank that has all blobs waits for requests before it probes whether the missing
  // clients are alive.
  Moment probe_after = std::chrono::seconds(1);
};

// What the ExchangeSession (or the simulation) must do for a rank. `link` is the session's number
// of an accepted connection.
struct ExchangeAction {
  enum class Kind : uint8_t {
    kPublish,  // publish this rank's contact in the store
    kLookUp,   // read the contact of `peer`, the source of round 0: on_contact()
    kRequest,  // connect to `peer`, the source of `round`, and send kRequest: on_connected(), then
               // on_response(), on_peer_failure() or on_disconnected(). If the peer has several
               // addresses, begin with another one each time
    kDisconnect,  // drop that connection; report no events of it any more
    kRespond,  // answer `round` over `link`, then close it: on_served() or on_client_disconnected()
    kSendFailure,          // send failure() over `link`, then close it
    kRejectDuplicate,      // reject `link` because this rank exists twice, then close it
    kSendFailureToSource,  // send failure() over the connection of kRequest, then close it
    kProbe,                // look up `peer` in the store and only connect: on_probed()
    kDone,                 // all blobs are known, and no peer needs this rank
    kFailed,               // see failure(); later requests still get the failure
  };
  Kind kind;
  uint8_t round = 0;
  int peer = -1;
  uint32_t link = 0;
};
using ExchangeActions = std::vector<ExchangeAction>;

// The state machine of one rank in the blob exchange, without input or output: events in, actions
// out. It holds no blobs and allocates only on failure, so that 100,000 of them fit into one
// simulation.
//
// Each rank publishes its contact in the store and looks up one neighbor's contact. All other
// traffic goes from rank to rank, in ceil(log2 size) rounds (see BruckRounds). A rank sends one
// request and one response per round.
//
// Throws: nothing; on_*() calls after the end are allowed and have no effect.
// Threads: one at a time.
class TC_API ExchangeProtocol {
 public:
  // Lifetime: `retry_policy` must outlive the object.
  ExchangeProtocol(int rank, int size, const ExchangeRetryPolicy& retry_policy) noexcept;

  // The events. Each appends to `out` the actions to run now, in order.
  void start(Moment now, ExchangeActions& out);
  void on_contact(Moment now, ExchangeActions& out);
  void on_connected() noexcept;
  // The connection of kRequest failed or broke. `refused`: the peer does not listen at that address
  // any more.
  void on_disconnected(Moment now, bool refused, ExchangeActions& out);
  // The whole response has arrived: its blobs and the contact of the next source are known.
  void on_response(Moment now, ExchangeActions& out);
  // A source or a client reports that it has failed.
  void on_peer_failure(int from, const FailureNotice& notice, ExchangeActions& out);
  // The client of `round` (checked by request_drop_reason()) sends its request over `link`.
  void on_request(int round, uint32_t link, uint64_t instance, ExchangeActions& out);
  void on_served(int round, ExchangeActions& out);
  // A client's connection closed before the client was served. The client may connect again.
  void on_client_disconnected(int round, uint32_t link) noexcept;
  void on_probed(int peer, bool alive, ExchangeActions& out);
  // This rank cannot go on, or has read in the store that another rank failed.
  void on_failed(const FailureNotice& why, ExchangeActions& out);
  void on_time(Moment now, ExchangeActions& out);
  // Returns the latest time at which on_time() must be called.
  Moment next_time() const noexcept;

  enum class ExchangePhase : uint8_t { kStore, kRequesting, kServing, kDone, kFailed };
  ExchangePhase phase() const noexcept { return phase_; }
  const BruckRounds& rounds() const noexcept { return rounds_; }
  // Returns the number of completed rounds: the blobs of min(2^round(), size) ranks are known.
  int round() const noexcept { return round_; }
  // Returns what this rank is waiting for: the phase, round and rank, for error texts.
  std::string waiting_for() const;
  // Valid in phase kFailed.
  const FailureNotice& failure() const noexcept { return failure_; }
  // Returns the number of clients that have received neither a response nor a failure.
  int unserved() const noexcept;

 private:
  void request(Moment now, ExchangeActions& out);
  void serve(int round, ExchangeActions& out);
  void finish_if_served(ExchangeActions& out);
  void probe(Moment now, ExchangeActions& out);
  void retry(Moment now) noexcept;
  FailureNotice timeout_failure() const;
  void fail(FailureNotice notice, ExchangeActions& out);
  bool has_ended() const noexcept { return phase_ >= ExchangePhase::kDone; }
  int first_unserved() const noexcept;

  enum class SourceLink : uint8_t { kNone, kConnecting, kConnected, kRetrying };

  BruckRounds rounds_;
  const ExchangeRetryPolicy* retry_policy_;
  ExchangePhase phase_ = ExchangePhase::kStore;
  SourceLink source_link_ = SourceLink::kNone;
  uint8_t round_ = 0;
  uint8_t refusals_ = 0, tries_ = 0;
  uint32_t requested_ = 0, responding_ = 0, served_ = 0;  // rounds, as bits
  std::array<uint32_t, kMaxRounds> links_{};              // link of each round's client
  std::array<uint32_t, kMaxRounds> instances_{};          // folded instance of each round's client
  Moment end_ = kNever, timer_ = kNever, probe_ = kNever, probe_interval_;
  FailureNotice failure_;
};

}  // namespace torch::comms::bootstrap
