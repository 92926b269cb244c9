#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "monitor/monitor_message.hpp"
#include "monitor/rank_status.hpp"

namespace torch::comms::monitor {

// On a clock that only grows; where it starts is the caller's.
using Moment = std::chrono::nanoseconds;
inline constexpr Moment kNever = Moment::max();

// What a rank has recorded of its calls in a group. Any thread; never blocks.
class CollectiveLogReader {
 public:
  virtual ~CollectiveLogReader() = default;
  // Number of the collective that it has called and that has not ended, the first one; 0: none.
  virtual uint64_t first_incomplete() const = 0;
  // See RankStatus. `number` may be 0: then only where it is counts.
  virtual RankStatus status_of(uint64_t number) const = 0;
};

// One rank's part in what the ranks of a group know of each other, without any input or output:
// events in, notes to neighbours (see graph.hpp) out. So that 100,000 of them fit into a test.
//
// - KernelProvider has failed is flooded: everybody hears of it once from each neighbour.
// - KernelProvider ends its communicator tells so in a question, so that it learns when all have
// heard.
// - A question is an echo [Segall, IEEE Trans. Inf. Theory 29(1), 1983]: it spreads over all
//   connections, and answers come together on the ways it came. Two messages a connection, and the
//   depth of the graph is how long it takes. Of questions at the same time one goes on and puts out
//   the others (echo with extinction; Tel, Introduction to Distributed Algorithms, 7.3), because
//   ranks that hang all want to know at once; its outcome is flooded. Whoever does not answer in
//   time is left out.
// - A check is a reduction to rank 0 on the tree, and word back.
//
// Threads: one at a time. Failure: never throws but for memory.
class MonitorProtocol {
 public:
  using OutgoingMessages = std::vector<std::pair<int, MonitorMessage>>;  // to whom, in order

  struct MonitorRetryPolicy {
    std::chrono::milliseconds reply_timeout{500};  // of a question, until its asker goes on without
    std::chrono::milliseconds initial_interval{
        200};  // from one comparison of a collective that stays
    std::chrono::milliseconds max_interval{10'000};  // open to the next; doubles
  };
  // `diary` and `pace` outlive it.
  MonitorProtocol(uint64_t group, int rank, int size, const CollectiveLogReader& diary,
                  const MonitorRetryPolicy& pace);

  const std::vector<int>& neighbors() const noexcept { return neighbors_; }

  // ---- what this rank wants
  // Its open collective, which began at `began`, is late: whether all others that have called it
  // called the same. Often does nothing, because that was asked a moment ago.
  void check_mismatch_later(Moment began, Moment now, OutgoingMessages& out);
  // The same of one that is known not to be what all have called, at once. Does nothing while this
  // rank asks that.
  void check_mismatch_now(Moment now, OutgoingMessages& out);
  // Where everybody is: report() within MonitorRetryPolicy::hearing. Does nothing while that is
  // asked.
  void query_progress(Moment now, OutgoingMessages& out);
  // It ends its communicator: is_abort_acknowledged() when all others have heard that, or that
  // another one ends, or after MonitorRetryPolicy::hearing.
  void announce_abort(const AbortReason& why, Moment now, OutgoingMessages& out);
  // It is about to begin collective `number`: checked() when all have said so, and alike.
  void start_consistency_check(uint64_t number, Moment now, OutgoingMessages& out);
  // It calls nothing more, and tells so its neighbours, or all members. `posted`: with each member,
  // by rank; empty: not known. Goes on hearing of those that close the group or fail.
  void close(OutgoingMessages& out, const std::vector<PostedCounts>& posted = {},
             bool tells_all = false);

  // ---- what happens
  void on_message(int from, const MonitorMessage& note, Moment now, OutgoingMessages& out);
  // `neighbour` has failed.
  void on_peer_failed(int neighbour, Moment now, OutgoingMessages& out);
  void on_time(Moment now, OutgoingMessages& out);
  // When on_time() is next needed, at the latest.
  Moment next_time() const noexcept;

  // ---- what is known
  // The first rank that failed without closing the group before; -1: none.
  int failed_rank() const noexcept { return failed_rank_; }
  struct GroupMismatch {
    uint64_t number;
    std::string reason;
    std::vector<int> culprits;
  };
  const std::optional<GroupMismatch>& mismatch() const noexcept { return mismatch_; }
  // What came of the last query_progress(), or of another rank's at about that time: where the
  // ranks were, and whose fault that seems to be.
  struct HangReport {
    std::string text;
    std::vector<int> culprits = {};
    Moment since{};
  };
  const std::optional<HangReport>& report() const noexcept { return report_; }
  uint64_t last_consistent() const noexcept { return last_consistent_; }
  // The first other rank that this one has heard of that it ends its communicator.
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
    std::optional<PostedCounts> posted;  // with this rank, where it has said so
  };
  // Of those that have told this rank of it, by rank.
  const std::map<int, PeerClose>& peer_closes() const noexcept { return peer_closes_; }

 private:
  struct EchoQuery {
    MonitorQuery query;
    int parent = -1;  // -1: this rank asks
    std::set<int> pending_neighbors;
    RankStatusSet statuses;
    Moment deadline{};
  };
  struct ConsistencyCheck {
    RankStatusSet statuses;
    std::set<int> received_from;
    bool has_entered = false;
  };
  MonitorMessage make_message(MonitorMessage::Kind kind) const;
  void send_to_neighbors(const MonitorMessage& note, int but, OutgoingMessages& out) const;
  bool has_closed_or_failed(int rank) const { return closed_or_failed_.contains(rank); }
  void start_query(MonitorQuery::Purpose aim, Moment now, OutgoingMessages& out,
                   const AbortReason& why = {});
  void propagate_query(MonitorMessage asked, int parent, std::chrono::milliseconds patience,
                       Moment now, OutgoingMessages& out);
  void on_query(int from, const MonitorMessage& asked, Moment now, OutgoingMessages& out);
  void on_reply(int from, Moment now, OutgoingMessages& out);
  void finish_query(Moment now, OutgoingMessages& out);
  void drop_query();
  // True where `answers` show that ranks disagree about what `question` is about, or about one of
  // those before: everybody is told.
  bool publish_mismatch(const RankStatusSet& answers, const MonitorQuery& question, Moment now,
                        OutgoingMessages& out);
  void publish_result(const MonitorMessage& found, Moment now, OutgoingMessages& out);
  void on_result(int from, const MonitorMessage& found, Moment now, OutgoingMessages& out);
  void store_result(const MonitorMessage& found, Moment now);
  void advance_consistency_check(uint64_t number, Moment now, OutgoingMessages& out);
  void mark_closed_or_failed(int rank, RankStatus::State how, Moment now, OutgoingMessages& out);

  const uint64_t group_;
  const int rank_, size_;
  const CollectiveLogReader& log_;
  const MonitorRetryPolicy& retry_policy_;
  const std::vector<int> neighbors_;
  std::map<int, RankStatus::State> closed_or_failed_;  // of those that are known to be
  std::map<int, PeerClose> peer_closes_;
  int failed_rank_ = -1;
  bool is_closed_ = false;

  std::optional<EchoQuery> query_;
  std::vector<MonitorQuery> past_queries_;  // the last few, whose late echoes mean nothing any more
  uint32_t query_serial_ = 0;
  MonitorQuery last_result_ = {};
  Moment report_deadline_ = kNever;  // of query_progress(): no report has come so far
  std::optional<HangReport> report_;
  std::optional<GroupMismatch> mismatch_;
  std::optional<PeerAbort> peer_abort_;
  std::optional<Errc> own_abort_code_;  // why this one does
  bool is_abort_acknowledged_ = false;
  // Of check_mismatch_later().
  Moment last_checked_begin_ = kNever;  // what had begun then
  Moment next_check_{0};
  std::chrono::milliseconds check_interval_{0};
  Moment last_query_seen_ = -std::chrono::hours(1);  // in somebody's question

  std::map<uint64_t, ConsistencyCheck> checks_;
  uint64_t last_consistent_ = 0;
};

}  // namespace torch::comms::monitor
