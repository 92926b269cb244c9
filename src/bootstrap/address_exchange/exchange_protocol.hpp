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

// On a clock that only grows; where it starts is the caller's.
using Moment = std::chrono::nanoseconds;
inline constexpr Moment kNever = Moment::max();

// How patient a rank is. The same on all ranks.
struct ExchangeRetryPolicy {
  Moment timeout = std::chrono::seconds(30);                // of the whole exchange, from start()
  Moment connect_timeout = std::chrono::seconds(3);         // with one kRequest
  Moment initial_interval = std::chrono::milliseconds(20);  // doubles up to
  Moment max_interval = std::chrono::seconds(1);
  // A contact is told only by a rank that listens there: refused so often, its process has ended.
  int max_refusals = 5;
  // How long a rank that knows everything waits to be asked before it looks whether those who have
  // not asked are alive.
  Moment probe_after = std::chrono::seconds(1);
};

// What the world is to do for a rank. `link` is the world's own number of a connection that came.
struct ExchangeAction {
  enum class Kind : uint8_t {
    kPublish,  // put this rank's contact into the store
    kLookUp,   // get that of `peer`, the source of round 0, from it: on_contact()
    kRequest,  // connect to `peer`, the source of `round`, and send kRequest: on_connected(),
               // then on_response(), on_peer_failure() or on_disconnected(). Where it has several
               // addresses, each time beginning with another one
    kDisconnect,  // drop that connection; nothing is said about it any more
    kRespond,  // answer `round` over `link`, then close it: on_served() or on_client_disconnected()
    kSendFailure,          // send failure() over `link`, then close it
    kRejectDuplicate,      // send, over `link`, that this rank is here twice, then close it
    kSendFailureToSource,  // send failure() over the connection of kRequest, then close it
    kProbe,                // look `peer` up in the store and connect to it, no more: on_probed()
    kDone,                 // everybody's blob is known, and nobody needs this rank any more
    kFailed,               // see failure(); whoever asks from now on is still told
  };
  Kind kind;
  uint8_t round = 0;
  int peer = -1;
  uint32_t link = 0;
};
using ExchangeActions = std::vector<ExchangeAction>;

// One rank's part in "everybody knows everybody's blob", without any input or output: events in,
// actions out. Holds no blobs and allocates nothing unless it fails, so that 100,000 of them fit
// into one simulation.
//
// Each rank publishes its contact in the store and looks up one neighbour's; all else goes from
// rank to rank, in ceil(log2 size) rounds (see BruckRounds). A rank sends one question and one
// answer a round.
//
// Threads: one at a time. Failure: nothing throws; on_*() after the end are allowed and harmless.
class TC_API ExchangeProtocol {
 public:
  // `pace` outlives it.
  ExchangeProtocol(int rank, int size, const ExchangeRetryPolicy& pace) noexcept;

  // Every event: what happened, when, and where to append what is to be done now, in order.
  void start(Moment now, ExchangeActions& out);
  void on_contact(Moment now, ExchangeActions& out);
  void on_connected() noexcept;
  // The connection of kRequest could not be made, or broke. `refused`: nobody listens there any
  // more.
  void on_disconnected(Moment now, bool refused, ExchangeActions& out);
  // The whole answer has come: its blobs are known, and where the next source is.
  void on_response(Moment now, ExchangeActions& out);
  // A source or a client tells that it has failed.
  void on_peer_failure(int from, const FailureNotice& notice, ExchangeActions& out);
  // The client of `round` (checked by request_drop_reason()) asks over `link`.
  void on_request(int round, uint32_t link, uint64_t instance, ExchangeActions& out);
  void on_served(int round, ExchangeActions& out);
  // The connection of a client is gone before it was served. It may come back.
  void on_client_disconnected(int round, uint32_t link) noexcept;
  void on_probed(int peer, bool alive, ExchangeActions& out);
  // This rank cannot go on, or has read in the store that another one does not: why.
  void on_failed(const FailureNotice& why, ExchangeActions& out);
  void on_time(Moment now, ExchangeActions& out);
  // When on_time() is next needed, at the latest.
  Moment next_time() const noexcept;

  enum class ExchangePhase : uint8_t { kStore, kRequesting, kServing, kDone, kFailed };
  ExchangePhase phase() const noexcept { return phase_; }
  const BruckRounds& rounds() const noexcept { return rounds_; }
  // How many rounds are over: the blobs of min(2^round(), size) ranks are known.
  int round() const noexcept { return round_; }
  // The phase, round and rank that this rank was waiting for: for error texts.
  std::string waiting_for() const;
  // Once it has failed.
  const FailureNotice& failure() const noexcept { return failure_; }
  // Clients that have had neither an answer nor the news that there is none.
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
  std::array<uint32_t, kMaxRounds> links_{};              // of who asked
  std::array<uint32_t, kMaxRounds> instances_{};          // folded
  Moment end_ = kNever, timer_ = kNever, probe_ = kNever, probing_;
  FailureNotice failure_;
};

}  // namespace torch::comms::bootstrap
