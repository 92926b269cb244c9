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

#include "monitor/monitor_network.hpp"
#include "tracing/local_peers.hpp"

namespace torch::comms {
struct Rendezvous;
}

namespace torch::comms::common {

class CollectiveLog;

using Clock = std::chrono::steady_clock;

// What is under way for so long is late: it is compared with what the other ranks called.
inline constexpr std::chrono::milliseconds kLateThreshold{200};
// How long whoever ends a communicator waits at most until all know of it. Only then do their
// operations go on without it.
inline constexpr std::chrono::milliseconds kAbortAckTimeout{200};

// What hints, else the environment, say of the side channel. Throws CommError(kInvalidArgument),
// without context.
struct MonitorOptions {
  bool is_enabled = true;           // `side_channel`
  std::string interface = {};       // `side_channel_interface`
  bool check_before_start = false;  // `check_calls`
};
MonitorOptions parse_monitor_options(const CommOptions& options);
// For describe(): what the side channel does.
std::string describe_monitor(const MonitorOptions& wishes);

// What is known of the other ranks of a communicator: by the side channel, or where there is none
// by what the ranks of this host have recorded; or nothing.
//
// Threads: any.
class PeerMonitor {
 public:
  PeerMonitor(std::shared_ptr<monitor::GroupMonitor> circle,
              std::unique_ptr<tracing::LocalPeerReader> neighbours)
      : group_monitor_(std::move(circle)), local_peers_(std::move(neighbours)) {}

  // There is a side channel.
  bool has_group_monitor() const noexcept { return group_monitor_ != nullptr; }
  // Something is wrong for good; one load.
  bool has_failure() const noexcept { return group_monitor_ && group_monitor_->has_failure(); }
  // Why the communicator cannot go on: ranks that have failed, or that disagree, or have ended it.
  // A rank that has failed may have done before what is under way: it counts after `patience`.
  std::optional<CommError> failure(const Context& context, std::chrono::milliseconds patience = {});
  // Throws that, where there is any; one load where there is none. `context` makes one.
  template <class MakeContext>
  void raise_failure(const MakeContext& context) {
    if (!has_failure()) return;
    if (const auto why = failure(context())) throw CommError(*why);
  }
  // Another rank has ended the communicator: why, as an error, once what ends here may have been
  // let go by that, see announce_abort().
  std::optional<CommError> abort_error(const Context& context) const;
  // The same, whatever ends here.
  bool is_aborted_by_peer() const;
  // Other ranks have closed the communicator, each by rank; one load where none has.
  std::map<int, monitor::MonitorProtocol::PeerClose> departures() const {
    return group_monitor_ && group_monitor_->has_peer_closes()
               ? group_monitor_->peer_closes()
               : std::map<int, monitor::MonitorProtocol::PeerClose>();
  }
  // Tells that one of them has done so before this collective, which it will never call. A known
  // disagreement of the ranks counts more. Returns: nothing where no rank has left before it, or
  // `number` is of no collective.
  std::optional<CommError> closed_before(const Context& context, uint64_t number) const;
  // This process may have been stopped. `unread`: since when nobody here has called this to its
  // end; where an end may have been told and taken effect meanwhile, all that has come is read:
  // true. An end that is found so counts at once, and where nobody has looked at anything for that
  // long, `unseen`, also one that the channel's own thread has just heard. To be called before
  // something begins, and before what is seen to have ended counts.
  bool drain_after_suspend(Clock::duration unread, Clock::duration unseen) noexcept {
    return group_monitor_ && unread > kAbortAckTimeout && drain_incoming(unseen > kAbortAckTimeout);
  }
  // This rank ends the communicator, and all others hear so. A library then lets operations of
  // other ranks go on as if they had what they wait for. False: nobody is to be waited for.
  bool announce_abort(const CommError& why);
  // After that, once: returns when all know that what is not done by now is not done; 0.3 s at
  // most, so that some may not where processes hardly get any time. Without a side channel that is
  // when ranks of this host have had the time to see for themselves that one has failed.
  void wait_abort_acknowledged();
  // The same as failure(), of what becomes known within `limit`: for an error that may have its
  // reason there. Several errors at once wait for it once.
  std::optional<CommError> wait_for_failure(const Context& context,
                                            std::chrono::milliseconds limit);
  // Looks for ranks that have ended where nobody tells of them. Takes time.
  std::optional<CommError> find_exited_rank(const Context& context);
  // An operation that began then is late: whether the ranks disagree will be in failure().
  void check_mismatch_later(Clock::time_point began);
  // Ranks are known to disagree: who calls what, which all are told then; nothing where that is not
  // found. Waits for the other ranks' words: milliseconds, 2.1 s at most where ranks do not get to
  // it.
  std::optional<CommError> find_mismatch(const Context& context);
  struct ProgressSummary {
    std::string text;                // ". ..."; "" where nothing is known
    std::vector<int> culprits = {};  // the ranks that all wait for
  };
  // Where the others are, for the text of a limit that has passed; nothing while they are asked.
  std::optional<ProgressSummary> query_progress();
  // The same; waits for it, 0.6 s at most.
  ProgressSummary wait_for_progress();
  // Of hint check_calls: returns when all ranks are about to begin their collective `number`, and
  // alike; with where they are if that is not known at `until`. Meanwhile `look` runs 50 times a
  // second, which throws to end the wait, as it must when there is a failure().
  std::optional<ProgressSummary> consistency_barrier(uint64_t number, Clock::time_point until,
                                                     const std::function<void()>& look);

 private:
  bool drain_incoming(bool overslept) noexcept;

  const std::shared_ptr<monitor::GroupMonitor> group_monitor_;
  std::mutex mutex_;  // guards all below, and what neighbours_ has
  const std::unique_ptr<tracing::LocalPeerReader> local_peers_;
  std::atomic<bool> was_suspended_{false};  // an end was told that may have taken effect unheard
  int exited_rank_ = -1;                    // the rank whose process had ended at the last look
  Clock::time_point failure_seen_at_{}, last_wait_at_{};
};

// kPeerFailed: `rank` has closed the communicator.
CommError peer_closed_error(int rank, const std::string& why, const Context& context);

// What the side channel has found, as an operation's error.
CommError to_comm_error(const monitor::GroupMonitor::GroupFailure& failure, const Context& context);

// The side channel of all ranks that met. Collective. Throws CommError, without context;
// Interrupted.
std::shared_ptr<monitor::GroupMonitor> open_monitor(const Rendezvous& met, const std::string& name,
                                                    const std::string& interface,
                                                    std::shared_ptr<const CollectiveLog> record);
// In place of that, where `error` keeps this rank from it: the others raise it, too.
void decline_monitor(const Rendezvous& met, const std::string& name,
                     const CommError& error) noexcept;

}  // namespace torch::comms::common
