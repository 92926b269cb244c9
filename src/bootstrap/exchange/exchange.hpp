#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/exchange/frame.hpp"
#include "bootstrap/exchange/rounds.hpp"

namespace torch::comms::bootstrap {

// On a clock that only grows; where it starts is the caller's.
using Moment = std::chrono::nanoseconds;
inline constexpr Moment kNever = Moment::max();

// How patient a rank is. The same on all ranks.
struct Pace {
  Moment limit = std::chrono::seconds(30);             // of the whole exchange, from start()
  Moment connecting = std::chrono::seconds(3);         // with one kAsk
  Moment first_retry = std::chrono::milliseconds(20);  // doubles up to
  Moment longest_retry = std::chrono::seconds(1);
  // A contact is told only by a rank that listens there: refused so often, its process has ended.
  int refusals = 5;
  // How long a rank that knows everything waits to be asked before it looks whether those who have
  // not asked are alive.
  Moment probing = std::chrono::seconds(1);
};

// What the world is to do for a rank. `link` is the world's own number of a connection that came.
struct Action {
  enum class Kind : uint8_t {
    kPublish,     // put this rank's contact into the store
    kLookUp,      // get that of `peer`, the source of round 0, from it: on_contact()
    kAsk,         // connect to `peer`, the source of `round`, and send kAsk: on_connected(),
                  // then on_answer(), on_notice() or on_lost(). Where it has several addresses,
                  // each time beginning with another one
    kHangUp,      // drop that connection; nothing is said about it any more
    kAnswer,      // answer `round` over `link`, then close it: on_served() or on_gone()
    kTell,        // send failure() over `link`, then close it
    kRefuse,      // send, over `link`, that this rank is here twice, then close it
    kTellSource,  // send failure() over the connection of kAsk, then close it
    kProbe,       // look `peer` up in the store and connect to it, no more: on_probed()
    kDone,        // everybody's blob is known, and nobody needs this rank any more
    kFailed,      // see failure(); whoever asks from now on is still told
  };
  Kind kind;
  uint8_t round = 0;
  int peer = -1;
  uint32_t link = 0;
};
using Actions = std::vector<Action>;

// One rank's part in "everybody knows everybody's blob", without any input or output: events in,
// actions out. Holds no blobs and allocates nothing unless it fails, so that 100,000 of them fit
// into one simulation.
//
// Each rank publishes its contact in the store and looks up one neighbour's; all else goes from
// rank to rank, in ceil(log2 size) rounds (see Rounds). A rank sends one question and one answer a
// round.
//
// Threads: one at a time. Failure: nothing throws; on_*() after the end are allowed and harmless.
class TC_API Exchange {
 public:
  // `pace` outlives it.
  Exchange(int rank, int size, const Pace& pace) noexcept;

  // Every event: what happened, when, and where to append what is to be done now, in order.
  void start(Moment now, Actions& out);
  void on_contact(Moment now, Actions& out);
  void on_connected() noexcept;
  // The connection of kAsk could not be made, or broke. `refused`: nobody listens there any more.
  void on_lost(Moment now, bool refused, Actions& out);
  // The whole answer has come: its blobs are known, and where the next source is.
  void on_answer(Moment now, Actions& out);
  // A source or a client tells that it has failed.
  void on_notice(int from, const Notice& notice, Actions& out);
  // The client of `round` (checked by why_not_ask()) asks over `link`.
  void on_ask(int round, uint32_t link, uint64_t instance, Actions& out);
  void on_served(int round, Actions& out);
  // The connection of a client is gone before it was served. It may come back.
  void on_gone(int round, uint32_t link) noexcept;
  void on_probed(int peer, bool alive, Actions& out);
  // This rank cannot go on, or has read in the store that another one does not: why.
  void on_failed(const Notice& why, Actions& out);
  void on_time(Moment now, Actions& out);
  // When on_time() is next needed, at the latest.
  Moment next_time() const noexcept;

  enum class Phase : uint8_t { kStore, kAsking, kServing, kDone, kFailed };
  Phase phase() const noexcept { return phase_; }
  const Rounds& rounds() const noexcept { return rounds_; }
  // How many rounds are over: the blobs of min(2^round(), size) ranks are known.
  int round() const noexcept { return round_; }
  // The phase, round and rank that this rank was waiting for: for error texts.
  std::string waiting_for() const;
  // Once it has failed.
  const Notice& failure() const noexcept { return failure_; }
  // Clients that have had neither an answer nor the news that there is none.
  int unserved() const noexcept;

 private:
  void ask(Moment now, Actions& out);
  void serve(int round, Actions& out);
  void finish_if_served(Actions& out);
  void probe(Moment now, Actions& out);
  void retry(Moment now) noexcept;
  Notice late() const;
  void fail(Notice notice, Actions& out);
  bool ended() const noexcept { return phase_ >= Phase::kDone; }
  int first_unserved() const noexcept;

  enum class Link : uint8_t { kNone, kConnecting, kConnected, kRetrying };

  Rounds rounds_;
  const Pace* pace_;
  Phase phase_ = Phase::kStore;
  Link link_ = Link::kNone;
  uint8_t round_ = 0;
  uint8_t refusals_ = 0, tries_ = 0;
  uint32_t asked_ = 0, answering_ = 0, served_ = 0;  // rounds, as bits
  std::array<uint32_t, kMaxRounds> links_{};         // of who asked
  std::array<uint32_t, kMaxRounds> instances_{};     // folded
  Moment end_ = kNever, timer_ = kNever, probe_ = kNever, probing_;
  Notice failure_;
};

}  // namespace torch::comms::bootstrap
