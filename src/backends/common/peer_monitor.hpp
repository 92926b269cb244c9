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

// An operation in flight for longer than this is late: the monitor then compares it with the calls
// of the peers.
inline constexpr std::chrono::milliseconds kLateThreshold{200};
// The longest time for which a rank that aborts its communicator waits until all peers acknowledge
// the abort. Only then does the library abort, which lets operations of peers complete without this
// rank's data.
inline constexpr std::chrono::milliseconds kAbortAckTimeout{200};

// Options of the monitor network, from hints, else from the environment.
struct MonitorOptions {
  bool is_enabled = true;           // `side_channel`
  std::string interface = {};       // `side_channel_interface`
  bool check_before_start = false;  // `check_calls`
};
// Throws: CommError(kInvalidArgument) without context, for a value that is not a boolean.
MonitorOptions parse_monitor_options(const CommOptions& options);
// Returns: what the monitor does, as a text for describe().
std::string describe_monitor(const MonitorOptions& options);

// Reports whether the peer ranks of a communicator are alive, in step, or failed. It uses the
// monitor network; if that is disabled, the event-ring files of the ranks on this host; otherwise
// it reports nothing.
//
// Threads: any.
class PeerMonitor {
 public:
  // Both may be null: the monitor network, and the event-ring files, are not used then.
  PeerMonitor(std::shared_ptr<monitor::GroupMonitor> group_monitor,
              std::unique_ptr<tracing::LocalPeerReader> local_peers)
      : group_monitor_(std::move(group_monitor)), local_peers_(std::move(local_peers)) {}

  // True if the communicator uses the monitor network (hint side_channel).
  bool has_group_monitor() const noexcept { return group_monitor_ != nullptr; }
  // True if the monitor has found a failure, a mismatch or an abort; this is permanent. One atomic
  // load.
  bool has_failure() const noexcept { return group_monitor_ && group_monitor_->has_failure(); }
  // Returns: why the communicator cannot continue, or nothing. kPeerFailed: a rank has failed.
  // kMismatch: ranks disagree. If a peer has aborted it: the error of monitor::as_seen_by_peers().
  // With `grace`, a failed rank counts only that long after the first report. It may
  // have completed the operations in flight before it failed. An abort then counts only 40 ms after
  // this rank has received it.
  std::optional<CommError> failure(const Context& context, std::chrono::milliseconds grace = {});
  // Throws the error of failure(), if there is one; else costs one atomic load. `context` makes the
  // error's context.
  template <class MakeContext>
  void raise_failure(const MakeContext& context) {
    if (!has_failure()) return;
    if (const auto why = failure(context())) throw CommError(*why);
  }
  // Returns: the failure if a peer has aborted the communicator and that may have let operations of
  // this rank complete without the peer's data (see announce_abort()); else nothing. An abort
  // counts 40 ms after this rank has received it; see drain_after_suspend() for exceptions.
  std::optional<CommError> abort_error(const Context& context) const;
  // True as soon as this rank knows that a peer has aborted the communicator.
  bool is_aborted_by_peer() const;
  // Returns: the peers that have closed the communicator, by rank. One atomic load if there are
  // none.
  std::map<int, monitor::MonitorProtocol::PeerClose> peer_closes() const {
    return group_monitor_ && group_monitor_->has_peer_closes()
               ? group_monitor_->peer_closes()
               : std::map<int, monitor::MonitorProtocol::PeerClose>();
  }
  // Checks whether a peer closed the communicator before it called collective `number`, which then
  // can never complete.
  // Returns: kPeerFailed for that peer; kMismatch if the ranks are known to disagree. Nothing if no
  // rank has closed before this collective, or `number` is not a collective's.
  std::optional<CommError> closed_before(const Context& context, uint64_t number) const;
  // Call this before an operation starts and before a finished operation is reported as complete,
  // because the process may have been suspended (SIGSTOP). `unread` is the time since the last call
  // that returned true, `unseen` the time since the last poll. If `unread` exceeds
  // kAbortAckTimeout, an aborting peer may have stopped waiting for this rank's acknowledgement.
  // The monitor's sockets are then drained, so that such an abort takes effect. An abort that is
  // found by draining counts at once in abort_error(). If `unseen` exceeds kAbortAckTimeout too, so
  // does an abort that the monitor's thread has read before.
  // Returns: true if it drained the sockets.
  bool drain_after_suspend(Clock::duration unread, Clock::duration unseen) noexcept {
    return group_monitor_ && unread > kAbortAckTimeout && drain_incoming(unseen > kAbortAckTimeout);
  }
  // Announces to all peers that this rank aborts the communicator. Call it before the library
  // aborts, because an abort lets operations of peers complete as if they had the data that they
  // wait for.
  // Returns: false if there is no peer that wait_abort_acknowledged() would wait for.
  bool announce_abort(const CommError& why);
  // Waits until all peers know that operations which have not finished by now will fail. Call it
  // once after each announce_abort() that has returned true. Without the monitor network it waits
  // long enough for ranks of this host to detect a failure themselves.
  // Blocks: at most 0.3 s. If processes get hardly any CPU time, some peers may still not know.
  void wait_abort_acknowledged();
  // Returns: failure(), for which it waits up to `limit`. Use it when an error at hand may have its
  // cause in a peer's failure. After a wait without result, calls within the next second do not
  // wait. Without the monitor network it returns nothing at once.
  std::optional<CommError> wait_for_failure(const Context& context,
                                            std::chrono::milliseconds limit);
  // Looks for exited ranks of this host in their event-ring files, if the monitor network is not
  // used. Costs a system call for each known rank.
  // Returns: kPeerFailed for a rank that two calls in succession have found exited; else nothing.
  std::optional<CommError> find_exited_rank(const Context& context);
  // Starts a comparison with the peers' calls, because an operation that began at `began` is late.
  // A mismatch appears in failure().
  void check_mismatch_later(Clock::time_point began);
  // Finds out which ranks call what, when ranks are known to disagree, and reports it to all ranks.
  // Returns: kMismatch; nothing if the mismatch is not found in time.
  // Blocks: while peers reply: milliseconds, at most 2.1 s if ranks do not reply.
  std::optional<CommError> find_mismatch(const Context& context);
  struct ProgressSummary {
    std::string text;                // starts with ". " or "; "; "" if nothing is known
    std::vector<int> culprits = {};  // the ranks that all ranks wait for
  };
  // Returns: which collective each peer is in, for the text of a timeout error; nothing while the
  // query is in flight. Does not block; call it again for the result.
  std::optional<ProgressSummary> query_progress();
  // Returns the result of query_progress().
  // Blocks: at most 0.7 s.
  ProgressSummary wait_for_progress();
  // Implements hint check_calls: waits until all ranks are about to begin collective `number` and
  // call the same. While it waits, `interrupt_check` runs 50 times a second; it must throw if there
  // is a failure().
  // Returns: nothing if the ranks agree or the monitor network is not used; the ranks' progress if
  // they have not all arrived at `until`.
  // Blocks: until then, and past `until` at most 0.5 s for the progress.
  // Throws: what `interrupt_check` throws.
  std::optional<ProgressSummary> consistency_barrier(uint64_t number, Clock::time_point until,
                                                     const std::function<void()>& interrupt_check);

 private:
  bool drain_incoming(bool polled_late) noexcept;

  const std::shared_ptr<monitor::GroupMonitor> group_monitor_;
  std::mutex mutex_;  // guards the members below that are not atomic, and *local_peers_
  const std::unique_ptr<tracing::LocalPeerReader> local_peers_;
  std::atomic<bool> was_suspended_{
      false};             // a peer's abort may have taken effect before this rank read of it
  int exited_rank_ = -1;  // the exited rank that the last search found; -1: none
  Clock::time_point failure_seen_at_{}, last_wait_at_{};
};

// Returns: an error kPeerFailed that says that `rank` has closed the communicator.
CommError peer_closed_error(int rank, const std::string& why, const Context& context);

// Converts a failure that the monitor has found into an operation's error.
CommError to_comm_error(const monitor::GroupMonitor::GroupFailure& failure, const Context& context);

// Connects the monitors of all ranks of a rendezvous. Collective. If this rank fails before the
// ranks exchange their addresses, it declines as decline_monitor().
//
// Blocks: at most until the deadline of `rendezvous`.
// Throws: CommError without context; Interrupted.
std::shared_ptr<monitor::GroupMonitor> open_monitor(const Rendezvous& rendezvous,
                                                    const std::string& name,
                                                    const std::string& interface,
                                                    std::shared_ptr<const CollectiveLog> record);
// Declines the collective open_monitor(), because `error` keeps this rank from it. Peers raise
// kPeerFailed with the text of `error`. A failure to notify them is only logged.
void decline_monitor(const Rendezvous& rendezvous, const std::string& name,
                     const CommError& error) noexcept;

}  // namespace torch::comms::common
