#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/options.hpp>

#include "side/monitor_network.hpp"
#include "tracing/local_peers.hpp"

namespace torch::comms {
struct Rendezvous;
}

namespace torch::comms::beside {

class Record;

using Clock = std::chrono::steady_clock;

// What is under way for so long is late: it is compared with what the other ranks called.
inline constexpr std::chrono::milliseconds kLate{200};
// How long whoever ends a communicator waits at most until all know of it. Only then do their
// operations go on without it.
inline constexpr std::chrono::milliseconds kToldAll{200};

// What hints, else the environment, say of the side channel. Throws CommError(kInvalidArgument),
// without context.
struct Wishes {
  bool side_channel = true;    // `side_channel`
  std::string interface = {};  // `side_channel_interface`
  bool check_calls = false;    // `check_calls`
};
Wishes wishes_of(const CommOptions& options);
// For describe(): what the side channel does.
std::string note_of(const Wishes& wishes);

// What is known of the other ranks of a communicator: by the side channel, or where there is none
// by what the ranks of this host have recorded; or nothing.
//
// Threads: any.
class Others {
 public:
  Others(std::shared_ptr<monitor::GroupMonitor> circle,
         std::unique_ptr<tracing::LocalPeerReader> neighbours)
      : circle_(std::move(circle)), neighbours_(std::move(neighbours)) {}

  // There is a side channel.
  bool is_watching() const noexcept { return circle_ != nullptr; }
  // Something is wrong for good; one load.
  bool is_alarmed() const noexcept { return circle_ && circle_->has_failure(); }
  // Why the communicator cannot go on: ranks that have failed, or that disagree, or have ended it.
  // A rank that has failed may have done before what is under way: it counts after `patience`.
  std::optional<CommError> failure(const Context& context, std::chrono::milliseconds patience = {});
  // Throws that, where there is any; one load where there is none. `context` makes one.
  template <class MakeContext>
  void raise_failure(const MakeContext& context) {
    if (!is_alarmed()) return;
    if (const auto why = failure(context())) throw CommError(*why);
  }
  // Another rank has ended the communicator: why, as an error, once what ends here may have been
  // let go by that, see announce_abort().
  std::optional<CommError> ended(const Context& context) const;
  // The same, whatever ends here.
  bool is_ended() const;
  // Other ranks have closed the communicator, each by rank; one load where none has.
  std::map<int, monitor::MonitorProtocol::PeerClose> departures() const {
    return circle_ && circle_->has_peer_closes()
               ? circle_->peer_closes()
               : std::map<int, monitor::MonitorProtocol::PeerClose>();
  }
  // Tells that one of them has done so before this collective, which it will never call. A known
  // disagreement of the ranks counts more. Returns: nothing where no rank has left before it, or
  // `number` is of no collective.
  std::optional<CommError> left_before(const Context& context, uint64_t number) const;
  // This process may have been stopped. `unread`: since when nobody here has called this to its
  // end; where an end may have been told and taken effect meanwhile, all that has come is read:
  // true. An end that is found so counts at once, and where nobody has looked at anything for that
  // long, `unseen`, also one that the channel's own thread has just heard. To be called before
  // something begins, and before what is seen to have ended counts.
  bool catch_up(Clock::duration unread, Clock::duration unseen) noexcept {
    return circle_ && unread > kToldAll && read_all(unseen > kToldAll);
  }
  // This rank ends the communicator, and all others hear so. A library then lets operations of
  // other ranks go on as if they had what they wait for. False: nobody is to be waited for.
  bool tell_end(const CommError& why);
  // After that, once: returns when all know that what is not done by now is not done; 0.3 s at
  // most, so that some may not where processes hardly get any time. Without a side channel that is
  // when ranks of this host have had the time to see for themselves that one has failed.
  void await_told();
  // The same as failure(), of what becomes known within `limit`: for an error that may have its
  // reason there. Several errors at once wait for it once.
  std::optional<CommError> await_failure(const Context& context, std::chrono::milliseconds limit);
  // Looks for ranks that have ended where nobody tells of them. Takes time.
  std::optional<CommError> lost_rank(const Context& context);
  // An operation that began then is late: whether the ranks disagree will be in failure().
  void compare(Clock::time_point began);
  // Ranks are known to disagree: who calls what, which all are told then; nothing where that is not
  // found. Waits for the other ranks' words: milliseconds, 2.1 s at most where ranks do not get to
  // it.
  std::optional<CommError> disagreement(const Context& context);
  struct Where {
    std::string text;                // ". ..."; "" where nothing is known
    std::vector<int> culprits = {};  // the ranks that all wait for
  };
  // Where the others are, for the text of a limit that has passed; nothing while they are asked.
  std::optional<Where> whereabouts();
  // The same; waits for it, 0.6 s at most.
  Where await_whereabouts();
  // Of hint check_calls: returns when all ranks are about to begin their collective `number`, and
  // alike; with where they are if that is not known at `until`. Meanwhile `look` runs 50 times a
  // second, which throws to end the wait, as it must when there is a failure().
  std::optional<Where> await_all(uint64_t number, Clock::time_point until,
                                 const std::function<void()>& look);

 private:
  bool read_all(bool overslept) noexcept;

  const std::shared_ptr<monitor::GroupMonitor> circle_;
  std::mutex mutex_;  // guards all below, and what neighbours_ has
  const std::unique_ptr<tracing::LocalPeerReader> neighbours_;
  std::atomic<bool> overslept_{false};  // an end was told that may have taken effect unheard
  int lost_ = -1;                       // the rank whose process had ended at the last look
  Clock::time_point told_{}, awaited_{};
};

// kPeerFailed: `rank` has closed the communicator.
CommError has_left(int rank, const std::string& why, const Context& context);

// What the side channel has found, as an operation's error.
CommError error_of(const monitor::GroupMonitor::GroupFailure& failure, const Context& context);

// The side channel of all ranks that met. Collective. Throws CommError, without context;
// Interrupted.
std::shared_ptr<monitor::GroupMonitor> open_side_channel(const Rendezvous& met,
                                                         const std::string& name,
                                                         const std::string& interface,
                                                         std::shared_ptr<const Record> record);
// In place of that, where `error` keeps this rank from it: the others raise it, too.
void decline_side_channel(const Rendezvous& met, const std::string& name,
                          const CommError& error) noexcept;

}  // namespace torch::comms::beside
