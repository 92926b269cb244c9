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

// The side channel: what ranks tell each other beside a library that moves their data and says
// little when something is wrong. Whose process has ended, where everybody is, whether all called
// the same. It costs an operation nothing; a thread of the process sleeps until somebody says
// something. On any host, over TCP.
namespace torch::comms::monitor {

class MonitorNetwork;

// A group of ranks as one of them sees it; of a communicator and each of its splits. Destroyed
// without close_queue() it tells the others that this rank has failed.
//
// Threads: any. Nothing blocks, but checked(), disagreement(), wait_for_failure() and
// wait_abort_acknowledged(), and close_queue() before that has returned.
class TC_API GroupMonitor {
 public:
  GroupMonitor(std::shared_ptr<MonitorNetwork> family, uint64_t group, std::vector<int> ranks,
               int rank, std::shared_ptr<const CollectiveLogReader> diary);
  ~GroupMonitor();
  GroupMonitor(const GroupMonitor&) = delete;
  GroupMonitor& operator=(const GroupMonitor&) = delete;

  // Members of this group, which all make the same one of them as their `count`th. `ranks`: of this
  // group, by rank there; with this rank.
  std::shared_ptr<GroupMonitor> split(const std::vector<int>& ranks, uint64_t count,
                                      std::shared_ptr<const CollectiveLogReader> diary) const;
  // In good order: nothing is wrong, and this rank has nothing more to say. Hears nothing more.
  void close() noexcept;
  // The first half of close_queue(): this rank calls nothing more, but waits for what it has
  // called, and goes on hearing of those that close the group or fail. See
  // MonitorProtocol::close_queue().
  void announce_close(const std::vector<PostedCounts>& posted, bool tells_all) noexcept;
  // Other members have closed the group. One load.
  bool has_peer_closes() const noexcept { return has_peer_closes_.load(std::memory_order_acquire); }
  std::map<int, MonitorProtocol::PeerClose> peer_closes() const;

  // Something is wrong with the group: see failure(). One load.
  bool has_failure() const noexcept { return has_failure_.load(std::memory_order_acquire); }
  // Waits for that, `limit` at most; whether it is so.
  bool wait_for_failure(std::chrono::milliseconds limit) const;
  // Reads what others have said and nobody has read, as after this process has been stopped, over
  // the connections that stand: whoever goes on first then knows what they know.
  void drain_incoming();
  // kPeerFailed: a rank has failed; kSizeMismatch: ranks called different things; or why another
  // rank has ended the communicator. Without context.
  struct GroupFailure {
    Errc code;
    std::string reason;
    std::vector<int> culprits;
    Moment abort_known_since = kNever;  // since when it is known that another one ends it
  };
  std::optional<GroupFailure> failure() const;
  // See MonitorProtocol.
  void check_mismatch_later(Moment began);
  // Ranks are known to disagree: who calls what, which all are told then. `patience`: for those who
  // have not called yet, without whom it may not be known who are few. Nothing where it is not
  // found within `limit` from then.
  std::optional<GroupFailure> find_mismatch(std::chrono::milliseconds patience,
                                            std::chrono::milliseconds limit);
  // What query_progress() of MonitorProtocol came to; nothing while the others are asked, half a
  // second at most.
  std::optional<MonitorProtocol::HangReport> query_progress();
  // This rank ends the communicator: all others hear so, or that another one does. False: there is
  // nobody to tell any more.
  bool announce_abort(const AbortReason& why);
  // After that, once: returns when all that can have heard it, after `limit` at most.
  void wait_abort_acknowledged(std::chrono::milliseconds limit);
  // Tells that this rank is about to begin a collective, and waits until all others are: true if
  // all call the same, false if that is not known after `tick`, or there is a failure().
  void start_consistency_check(uint64_t number);
  bool wait_consistent(uint64_t number, std::chrono::milliseconds tick);

 private:
  friend class MonitorNetwork;
  void leave_network(bool well) noexcept;

  const std::shared_ptr<MonitorNetwork> network_;
  const uint64_t group_;
  const std::vector<int> ranks_;  // of the family, by rank here
  const std::shared_ptr<const CollectiveLogReader> log_;
  std::map<int, int> neighbor_ranks_;  // ranks here of the neighbours, by rank of the family
  std::atomic<bool> has_failure_{false}, has_peer_closes_{false};
  MonitorProtocol protocol_;  // guarded by the family's lock, as all below
  bool is_closed_ = false;
  bool has_announced_close_ = false;  // that this rank has closed the group
  int pending_abort_announcements_ =
      0;  // ends that are told, and nobody knows of yet that they are heard
};

// The ranks that start together, and the connections between them: those that groups of theirs
// need, which stay. Ends with its last group.
//
// Threads: any.
class TC_API MonitorNetwork : public std::enable_shared_from_this<MonitorNetwork> {
 public:
  struct MonitorExchangeResult {
    std::vector<std::string> blobs;  // by rank
    base::Secret secret;
  };
  // Takes this rank's blob to all others.
  using AddressExchange = std::function<MonitorExchangeResult(std::string mine)>;
  // Collective. `interface`: to be reached at, see base::choose_addresses(). Throws CommError:
  // kResourceExhausted, kSystem, kSizeMismatch, kInvalidArgument, and what `exchange` throws.
  static std::shared_ptr<MonitorNetwork> make(int rank, int size, const std::string& interface,
                                              const AddressExchange& exchange,
                                              MonitorProtocol::MonitorRetryPolicy pace = {});
  ~MonitorNetwork();

  // The group of all; once.
  std::shared_ptr<GroupMonitor> world_group(std::shared_ptr<const CollectiveLogReader> diary);
  // Threads of this process, and descriptors at most: for notes.
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
  void service(int rank, MonitorConnection& link, short events, Moment now);
  void drain_incoming();
  void accept_all(Moment now);
  bool accept_peer(PendingMonitorConnection& guest, Moment now);
  MonitorConnection& connection_to(int rank, Moment now);
  void add(GroupMonitor& circle);
  void remove(GroupMonitor& circle, bool well) noexcept;
  void read(int from, MonitorConnection& link, Moment now);
  void deliver(GroupMonitor& circle, int from, const MonitorMessage& note, Moment now);
  // With the lock: sends what `circle` has to say, and tells those who wait for it.
  void send_messages(GroupMonitor& circle, const MonitorProtocol::OutgoingMessages& notes);
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

  mutable std::mutex mutex_;  // guards all below; partner of changed_
  std::condition_variable changed_;
  std::map<int, std::unique_ptr<MonitorConnection>> connections_;  // by rank
  transport::HandshakeQueue<PendingMonitorConnection> handshakes_{
      [this](PendingMonitorConnection& guest) { return accept_peer(guest, now()); }};
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
