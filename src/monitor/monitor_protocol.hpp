#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "monitor/message_carrier.hpp"
#include "monitor/mismatch_report.hpp"
#include "monitor/monitor_message.hpp"
#include "monitor/rank_status.hpp"

namespace torch::comms::monitor {

// What a rank has recorded of its calls in a group. No call blocks.
// Threads: any.
class CollectiveLogReader {
 public:
  virtual ~CollectiveLogReader() = default;
  // Returns: the number of the first collective that this rank has called and that has not
  // completed; 0: none.
  virtual uint64_t first_incomplete() const = 0;
  // Returns: this rank's status for collective `number`; with 0 only the progress counts.
  virtual RankStatus status_of(uint64_t number) const = 0;
};

// Which ranks of a group exchange messages directly.
enum class MonitorTopology : uint8_t {
  kOverlay,   // neighbors in a tree and a ring: see overlay_topology.hpp
  kComplete,  // all ranks
};

// The state machine of one rank in a monitored group: events in, messages to neighbors out, over a
// MessageCarrier. A test can therefore simulate 100,000 ranks.
//
// - The failure of a rank is flooded: every rank learns of it once from each neighbor.
// - An abort is announced by a query, so that the aborting rank learns when all ranks have received
//   it.
// - With MonitorTopology::kOverlay a query is an echo [Segall, IEEE Trans. Inf. Theory 29, 1983].
//   It spreads over all connections, and the replies are merged on the way back. It costs two
//   messages per connection and takes time proportional to the depth of the graph. Of concurrent
//   queries one continues and stops the others (echo with extinction; Tel, Introduction to
//   Distributed Algorithms, 7.3), because hanging ranks all query at once. Its result is flooded.
//   Ranks that do not answer in time are left out.
// - With MonitorTopology::kComplete a query goes from its origin to all ranks, and each replies at
//   once. Queries do not stop each other, so that the result of a rank depends on no other rank's
//   time.
// - A consistency check is a reduction to rank 0 over the tree, and a broadcast of the result.
//
// Throws: only std::bad_alloc.
// Threads: one at a time.
class MonitorProtocol {
 public:
  struct MonitorRetryPolicy {
    std::chrono::milliseconds reply_timeout{500};     // of a query
    std::chrono::milliseconds initial_interval{200};  // first repetition of check_mismatch_later()
    std::chrono::milliseconds max_interval{10'000};   // the interval doubles up to this
  };
  struct MonitoredGroup {
    uint64_t id;
    int rank, size;
    MonitorTopology topology = MonitorTopology::kOverlay;
  };
  // Lifetime: `log`, `carrier` and `retry_policy` must outlive the object.
  MonitorProtocol(const MonitoredGroup& group, const CollectiveLogReader& log,
                  MessageCarrier& carrier, const MonitorRetryPolicy& retry_policy);

  const std::vector<int>& neighbors() const noexcept { return neighbors_; }

  // ---- requests of this rank
  // This rank's open collective, which began at `began`, is late: queries whether all ranks that
  // have called it called the same. The result is in mismatch(). Does nothing if no collective is
  // open, or if a query ran a short time ago; see MonitorRetryPolicy.
  // Returns: when to call it again for the same call.
  Moment check_mismatch_later(Moment began);
  // Queries at once, because the ranks are known to disagree about the open collective. Does
  // nothing if no collective is open, or while such a query of this rank runs.
  void check_mismatch_now();
  // This rank has seen in its data that the ranks disagree about collective `number`: `observation`
  // says what it has seen, or is "". Queries what all ranks have called, and again until all have
  // begun that collective, at most for MonitorRetryPolicy::reply_timeout. The result is in
  // mismatch() of all ranks: what each has called, or the observation if that is equal, and the
  // progress of all if a rank has not begun it. Does nothing after a report of the same or an
  // earlier collective. report() gets a value instead if another rank's query does not end in time.
  void report_mismatch(uint64_t number, const std::string& observation);
  // Queries the progress of all ranks, because collective `number` fails (0: none): report() has it
  // within MonitorRetryPolicy::reply_timeout, unless the query finds a mismatch. Does nothing while
  // such a query runs, or while report() is younger than twice that timeout.
  void query_progress(uint64_t number);
  // Announces that this rank aborts its communicator. is_abort_acknowledged() becomes true once all
  // ranks have received this or another rank's abort, or after MonitorRetryPolicy::reply_timeout.
  // Does nothing if this rank or a peer has announced an abort before.
  void announce_abort(const AbortReason& why);
  // This rank is about to begin collective `number`: last_consistent() reaches it when all ranks
  // have announced the same call. If their calls differ, mismatch() gets a value.
  void start_consistency_check(uint64_t number);
  // This rank starts no more operations; notifies its neighbors, or with `to_all_ranks` all ranks.
  // `posted`: the counts with each rank, by rank; empty: unknown. Later events about peers that
  // close or fail are still handled; all other messages are ignored.
  void close(const std::vector<PostedCounts>& posted = {}, bool to_all_ranks = false);
  // This rank ends without close(), because of `why`: its neighbors count it as failed.
  void leave_failed(const std::string& why);

  // ---- events
  void on_message(int from, const MonitorMessage& message);
  // `rank` counts as failed, unless it has closed the group. `why`, such as "its process (7) has
  // exited", reaches all ranks.
  void on_peer_failed(int rank, const std::string& why) {
    mark_closed_or_failed(rank, RankStatus::State::kFailed, why);
  }
  // `rank` has closed the group, as this rank has learned otherwise than by a message.
  void on_peer_closed(int rank) { mark_closed_or_failed(rank, RankStatus::State::kClosed); }
  void on_time();
  // Returns: the latest time at which on_time() must be called; kNever: no call is needed.
  Moment next_time() const noexcept;

  // ---- state
  // What is wrong with the group. kMismatch: ranks called different operations. If a peer has
  // aborted the communicator: the error of as_seen_by_peers(). kPeerFailed: a rank has failed. If
  // several apply, the first of them counts.
  struct GroupFailure : AbortReason {
    Moment abort_known_since = kNever;  // since when the abort of a peer is known; kNever: none
  };
  std::optional<GroupFailure> failure() const;
  // Returns: the ranks that failed before they closed the group, in the order in which this rank
  // learned of them.
  const std::vector<int>& failed_ranks() const noexcept { return failed_ranks_; }
  struct GroupMismatch {
    uint64_t number;  // of the collective
    std::string reason;
    std::vector<int> culprits;
  };
  const std::optional<GroupMismatch>& mismatch() const noexcept { return mismatch_; }
  // The result of the last query_progress(), or with MonitorTopology::kOverlay of another rank's
  // query at about that time: the progress of the ranks and the culprits.
  struct HangReport {
    std::string text;
    std::vector<int> culprits = {};
    Moment since{};  // when this rank received it
  };
  const std::optional<HangReport>& report() const noexcept { return report_; }
  // Returns: the last collective that all ranks have announced with the same call; 0: none.
  uint64_t last_consistent() const noexcept { return last_consistent_; }
  // The first abort of another rank that this rank has received.
  struct PeerAbort {
    int rank;
    AbortReason reason;
    Moment since;
  };
  const std::optional<PeerAbort>& peer_abort() const noexcept { return peer_abort_; }
  bool is_abort_acknowledged() const noexcept { return is_abort_acknowledged_; }
  // How another rank has closed the group.
  struct PeerClose {
    uint64_t last = 0;                   // number of its last collective
    std::optional<PostedCounts> posted;  // with this rank, if the peer sent them
  };
  // Returns: the closes that peers have announced to this rank, by rank.
  const std::map<int, PeerClose>& peer_closes() const noexcept { return peer_closes_; }

 private:
  struct EchoQuery {
    MonitorQuery query;
    int parent = -1;  // -1: this rank is the origin
    std::set<int> pending_neighbors;
    RankStatusSet statuses;
    std::string observation;  // kReportMismatch: of a rank that has one
    Moment deadline{};
    bool is_repeated = false;        // at `deadline` this rank queries again
    RankStatusSet earlier_statuses;  // the replies to the query that this one repeats
  };
  struct ConsistencyCheck {
    RankStatusSet statuses;
    std::set<int> received_from;
    bool has_entered = false;
  };
  MonitorMessage failed_message(int rank, const std::string& why) const;
  void send_to_neighbors(const MonitorMessage& message, int except = -1) const;
  bool has_closed_or_failed(int rank) const { return closed_or_failed_.contains(rank); }
  void start_query(MonitorQuery::Purpose purpose, uint64_t number, const AbortReason& why = {});
  EchoQuery make_echo(const MonitorQuery& query) const;
  void propagate_query(MonitorMessage query_message, int parent, std::chrono::milliseconds timeout);
  void on_query(int from, const MonitorMessage& query_message);
  void send_reply(int to, const EchoQuery& echo);
  void on_reply(int from);
  void finish_query();
  void drop_query();
  // Publishes a mismatch if `statuses` show one in the collective of `query` or in one before it;
  // with MonitorTopology::kComplete after ranks that are behind have been asked again.
  // Returns: whether there was a mismatch.
  bool find_mismatch(const RankStatusSet& statuses, const MonitorQuery& query);
  // Publishes the result of report_mismatch(), or prepares to query again.
  void finish_mismatch_report();
  void publish_mismatch(const MonitorQuery& query, uint64_t number, const MismatchReport& found);
  void publish_result(const MonitorMessage& result);
  void on_result(int from, const MonitorMessage& result);
  void store_result(const MonitorMessage& result);
  void advance_consistency_check(uint64_t number);
  void mark_closed_or_failed(int rank, RankStatus::State state, const std::string& why = {});

  const uint64_t group_;
  const int rank_, size_;
  const CollectiveLogReader& log_;
  MessageCarrier& carrier_;
  const MonitorRetryPolicy& retry_policy_;
  const bool is_complete_;  // MonitorTopology::kComplete
  const std::vector<int> neighbors_;
  std::map<int, RankStatus::State> closed_or_failed_;  // by rank
  std::map<int, PeerClose> peer_closes_;
  std::vector<int> failed_ranks_;
  std::string first_failure_;  // why the first of failed_ranks_ has failed
  bool is_closed_ = false;

  std::optional<EchoQuery> query_;
  std::vector<MonitorQuery> past_queries_;  // the last few; their late replies are ignored
  uint32_t query_serial_ = 0;
  MonitorQuery last_result_ = {};
  // The arguments of report_mismatch(); number 0: not called.
  struct MismatchObservation {
    uint64_t number = 0;
    std::string text;
  } observation_;
  // Of query_progress() and report_mismatch(), until they have a result.
  Moment report_deadline_ = kNever;
  uint64_t report_number_ = 0;
  std::optional<HangReport> report_;
  std::optional<GroupMismatch> mismatch_;
  std::optional<PeerAbort> peer_abort_;
  std::optional<Errc> own_abort_code_;  // set once this rank aborts
  bool is_abort_acknowledged_ = false;
  // State of check_mismatch_later().
  Moment last_checked_begin_ = kNever;  // `began` of the last check
  Moment next_check_{0};
  std::chrono::milliseconds check_interval_{0};
  Moment last_query_seen_ = -std::chrono::hours(1);  // of any rank

  std::map<uint64_t, ConsistencyCheck> checks_;
  uint64_t last_consistent_ = 0;
};

}  // namespace torch::comms::monitor
