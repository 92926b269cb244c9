#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "base/net/listener.hpp"
#include "base/os/handles.hpp"
#include "base/os/secret.hpp"
#include "monitor/closed_groups.hpp"
#include "monitor/monitor_connection.hpp"
#include "monitor/monitor_protocol.hpp"
#include "transport/connect/handshake_queue.hpp"

// The monitor network (the side channel): TCP connections beside the library that moves the data.
// Over them the ranks report failed processes, aborts, mismatched calls and their progress. It adds
// no cost to an operation; one thread per MonitorNetwork sleeps until a message arrives or a timer
// expires.
namespace torch::comms::monitor {

class MonitorNetwork;

// One rank's view of a group of ranks: a communicator or one of its splits. If it is destroyed
// without close() or announce_close(), it reports to the peers that this rank has failed.
//
// Blocks: wait_consistent(), find_mismatch(), wait_for_failure() and wait_abort_acknowledged(), for
// the durations passed. After an announce_abort(), close() and the destructor block until its
// wait_abort_acknowledged() has returned, at most 0.5 s. The destructor of the last group of a
// network also ends the network; see ~MonitorNetwork(). No other call blocks.
// Threads: any.
// Lifetime: it keeps the network and `log`.
class TC_API GroupMonitor final : private MessageCarrier {
 public:
  // Use MonitorNetwork::world_group() or split() instead. `ranks`: ranks in the network; `rank`:
  // this rank in the group.
  GroupMonitor(std::shared_ptr<MonitorNetwork> network, uint64_t group, std::vector<int> ranks,
               int rank, std::shared_ptr<const CollectiveLogReader> log);
  ~GroupMonitor();
  GroupMonitor(const GroupMonitor&) = delete;
  GroupMonitor& operator=(const GroupMonitor&) = delete;

  // Makes the monitor of a subgroup, without a message. All ranks of the subgroup must pass the
  // same `count`, the number of the split. `ranks`: the subgroup's ranks in this group, in the
  // order of their new ranks, including this rank.
  std::shared_ptr<GroupMonitor> split(const std::vector<int>& ranks, uint64_t count,
                                      std::shared_ptr<const CollectiveLogReader> log) const;
  // Closes the group cleanly: peers do not report this rank as failed. This rank then neither sends
  // nor receives messages of the group. Later calls do nothing; failure() keeps its value.
  void close() noexcept;
  // The first half of close(): announces that this rank starts no more operations. Reports of peers
  // that close or fail still arrive, for operations that this rank has started. See
  // MonitorProtocol::close().
  void announce_close(const std::vector<PostedCounts>& posted, bool to_all_ranks) noexcept;
  // Returns: whether other ranks have closed the group. Costs one load.
  bool has_peer_closes() const noexcept { return has_peer_closes_.load(std::memory_order_acquire); }
  std::map<int, MonitorProtocol::PeerClose> peer_closes() const;

  // Returns: whether failure() has a value. Costs one load.
  bool has_failure() const noexcept { return has_failure_.load(std::memory_order_acquire); }
  // Returns: has_failure().
  // Blocks: until has_failure() or close(), at most `limit`.
  bool wait_for_failure(std::chrono::milliseconds limit) const;
  // Reads all messages that have arrived on the established connections, for example after this
  // process was suspended. Failures and aborts reported meanwhile then take effect.
  void drain_incoming();
  // See MonitorProtocol::failure().
  using GroupFailure = MonitorProtocol::GroupFailure;
  std::optional<GroupFailure> failure() const;
  // See MonitorProtocol::check_mismatch_later().
  void check_mismatch_later(Moment began);
  // Call it when ranks are known to disagree: finds out which ranks call what, and all ranks get
  // the result. `initial_wait`: how long to wait for ranks that have not called yet; without them
  // the minority may be unknown.
  // Returns: kMismatch; nothing if no mismatch is found within `initial_wait` + `limit`.
  std::optional<GroupFailure> find_mismatch(std::chrono::milliseconds initial_wait,
                                            std::chrono::milliseconds limit);
  // Starts MonitorProtocol::query_progress(), unless it runs already.
  // Returns: its report; nothing while the query runs, at most 0.5 s. An empty report after
  // close().
  std::optional<MonitorProtocol::HangReport> query_progress();
  // Announces that this rank aborts the communicator. If a peer aborts it, too, the announcement
  // may be of that abort.
  // Returns: false if this group is closed. After true, wait_abort_acknowledged() must follow.
  bool announce_abort(const AbortReason& why);
  // Call it once after each announce_abort() that has returned true.
  // Blocks: until all reachable ranks have received the announcement, or close(), at most `limit`.
  void wait_abort_acknowledged(std::chrono::milliseconds limit);
  // A consistency check: announces that this rank is about to begin collective `number`.
  // wait_consistent() waits until all ranks have done so.
  // Returns: true if all call the same; false after `tick` without a result, after close(), or if
  // there is a failure().
  void start_consistency_check(uint64_t number);
  bool wait_consistent(uint64_t number, std::chrono::milliseconds tick);

 private:
  friend class MonitorNetwork;
  void send(int rank, const MonitorMessage& message) override;
  Moment now() const noexcept override;
  // Calls `body(protocol_)` with the network's mutex_, unless this group is closed.
  // Returns: whether it is open.
  template <class Body>
  bool with_protocol(const Body& body);
  // Call it with the network's mutex_ after a call of the protocol: wakes the threads that wait for
  // its state.
  void publish();
  void leave_network(bool graceful) noexcept;

  const std::shared_ptr<MonitorNetwork> network_;
  const uint64_t group_;
  const std::vector<int> ranks_;  // in the MonitorNetwork, by rank in this group
  const std::shared_ptr<const CollectiveLogReader> log_;
  std::map<int, int>
      neighbor_ranks_;  // ranks of neighbors in this group, by their rank in the network
  std::atomic<bool> has_failure_{false}, has_peer_closes_{false};
  MonitorProtocol protocol_;  // guarded by network_->mutex_, as are all members below
  bool is_closed_ = false;
  bool has_announced_close_ = false;  // announce_close() has been called
  int pending_abort_announcements_ =
      0;  // aborts announced whose wait_abort_acknowledged() has not returned
};

// The ranks that started together and the connections between their monitors. A connection is made
// when a group needs it, and stays. The network ends with its last GroupMonitor.
//
// Threads: any.
class TC_API MonitorNetwork : public std::enable_shared_from_this<MonitorNetwork> {
 public:
  struct MonitorExchangeResult {
    std::vector<std::string> blobs;  // by rank
    base::Secret secret;
  };
  // A collective that gives every rank the blobs of all ranks.
  using AddressExchange = std::function<MonitorExchangeResult(std::string mine)>;
  // Makes the network; collective over all ranks. `interface`: whose addresses this rank publishes,
  // see base::choose_addresses().
  // Blocks: as long as `exchange`.
  // Throws: CommError: kResourceExhausted, kSystem, kMismatch, kInvalidArgument, and what
  // `exchange` throws.
  static std::shared_ptr<MonitorNetwork> make(
      int rank, int size, const std::string& interface, const AddressExchange& exchange,
      MonitorProtocol::MonitorRetryPolicy retry_policy = {});
  // Blocks: until messages to peers have been sent, at most 1 s.
  ~MonitorNetwork();

  // Makes the monitor of the group of all ranks; call it once.
  std::shared_ptr<GroupMonitor> world_group(std::shared_ptr<const CollectiveLogReader> log);
  // Returns: the number of established connections, for diagnostics.
  int connection_count() const;

 private:
  friend class GroupMonitor;
  MonitorNetwork() = default;
  struct MonitorContact {
    uint64_t instance = 0;
    std::string process_description, contact;
  };
  struct PendingMonitorConnection {
    transport::tcp::PendingTcpConnection connection;
    Moment since;
    int socket() const noexcept { return connection.socket(); }
  };
  void run();
  void poll_once(std::unique_lock<std::mutex>& lock);
  void service(int rank, MonitorConnection& connection, short events, Moment now);
  void drain_incoming();
  void accept_all(Moment now);
  bool accept_peer(PendingMonitorConnection& pending, Moment now);
  MonitorConnection& connection_to(int rank, Moment now);
  void add(GroupMonitor& group_monitor);
  void remove(GroupMonitor& group_monitor, bool graceful) noexcept;
  void read(int from, MonitorConnection& connection);
  void deliver(GroupMonitor& group_monitor, int from, const MonitorMessage& message);
  std::string why_failed(int rank) const;
  bool has_unsent() const;
  void wake() const noexcept;
  static Moment now() { return std::chrono::steady_clock::now().time_since_epoch(); }

  int rank_ = 0;
  std::vector<MonitorContact> contacts_;  // by rank
  base::Secret secret_ = {};
  MonitorProtocol::MonitorRetryPolicy retry_policy_;
  uint64_t fork_generation_ = 0;
  std::optional<base::Listener> listener_;
  base::FileDescriptor wakeup_event_;
  std::thread thread_;

  // Guards all members below, and members of the groups; partner of changed_.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::unique_ptr<MonitorConnection>> connections_;  // by rank
  transport::HandshakeQueue<PendingMonitorConnection> handshakes_{
      [this](PendingMonitorConnection& pending) { return accept_peer(pending, now()); }};
  std::map<uint64_t, GroupMonitor*> groups_;
  struct EarlyMessage {
    int from;
    MonitorMessage message;
  };
  std::list<EarlyMessage> early_messages_;  // for groups that this rank has not made yet
  ClosedGroups closed_groups_;
  bool is_stopping_ = false;
};

}  // namespace torch::comms::monitor
