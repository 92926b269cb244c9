#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>
#include <torchcomms/options.hpp>
#include <torchcomms/work.hpp>

#include "bootstrap/arrival_barrier.hpp"
#include "core/rendezvous/init_handle.hpp"
#include "core/rendezvous/rendezvous.hpp"

namespace torch::comms {

// How a communicator that was made with enable_reconfigure=True meets its members, again and again.
// It knows nothing of how they are connected then.
//
// The store: see open_member_store(). It is only asked while members meet, on a connection of its
// own each time. Members whose stores differ meet at that of the first one, which its handle names.
// The communicator keeps its store until close_queue(); a store that it serves itself ends then,
// also under members that met there. They need it for the next meeting only if this one comes
// first.
//
// Agreement: a member says at the store what it calls, and looks, while it waits, what those it
// waits for have called. The newest call counts: a member that waits for one which has since called
// something else raises kSizeMismatch, as do all that wait with it. So do members that use one uuid
// for different lists.
//
// Threads: one at a time, but abort(): any.
class TC_API Reconfiguration {
 public:
  // Reaches no other rank. Throws CommError: kInvalidArgument naming what to set, kTimeout,
  // kResourceExhausted.
  Reconfiguration(const std::string& backend, std::string name, const CommOptions& options);

  // A communicator's, if it has one. Throws CommError(kUnsupported) saying what makes it have one.
  static Reconfiguration& require(const std::unique_ptr<Reconfiguration>& its,
                                  const Context& context);

  // Lets go of the store; only require_handle() goes on.
  void close() noexcept { store_.reset(), rendezvous_store_.reset(); }

  InitHandle handle() const { return self_.to_text(); }

  // Throws CommError(kInvalidArgument): a uuid that was used, a handle that is none or is there
  // twice, a list without this member, a handle without an address whose member is not at this
  // one's store. Changes nothing. `timeout`: the limit where options has none.
  ReconfigureMembers parse_members(const ReconfigureOptions& options,
                                   std::chrono::milliseconds timeout) const;

  // How `members` are those that were connected last without some of them.
  struct ShrinkPlan {
    std::string parent_key;  // equal for all that were connected together, and for no others
    std::vector<int> excluded_ranks;    // ranks there, in rising order
    std::string not_shrinkable_reason;  // not empty: they are not, or were connected with nobody
  };
  ShrinkPlan shrink_plan(const ReconfigureMembers& members) const;

  // Meets them all, and has them connected by `connect`; then this handle says so, and those that
  // are no members any more are told. Uses the uuid up. The work is a failed one for a CommError of
  // either, on all that take part: kTimeout naming the absent ones, kSizeMismatch, kPeerFailed.
  // Throws what ends a wait.
  WorkPtr run(const ReconfigureMembers& members,
              const std::function<void(const Rendezvous& met)>& connect);

  // The run_all() of members that were asked for before gives a work that has failed with kAborted,
  // within half a second; what it has connected meanwhile is the caller's to undo.
  void abort() noexcept { abort_count_.fetch_add(1); }

  // kStaleGeneration once the other members have connected without this one, as far as the store
  // tells within half a second. Throws what ends a wait.
  std::optional<CommError> check_excluded(const Context& context);
  // Whether it has found that before.
  bool is_excluded() const noexcept { return exclusion_reason_.has_value(); }

 private:
  // Whether the store of that member is the one that this member brings.
  bool is_at_own_store(const InitHandleInfo& member) const noexcept;
  // A connection to the store of that member.
  c10::intrusive_ptr<c10d::Store> connect_to_store(const InitHandleInfo& member,
                                                   bootstrap::Deadline deadline,
                                                   const Context& context) const;
  Rendezvous rendezvous_members(const ReconfigureMembers& members);
  void require_not_aborted(const ReconfigureMembers& members) const;
  void on_connected(const ReconfigureMembers& members);
  bootstrap::ArrivalBarrierResult wait_for_members(const ReconfigureMembers& members,
                                                   bootstrap::Deadline deadline);
  void notify_excluded(const ReconfigureMembers& before, const ReconfigureMembers& members);
  // What those that have gone on without this member have told it.
  std::optional<std::string> find_exclusion_notice(const Context& context) const;

  std::string name_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  InitHandleInfo self_;
  std::set<int64_t> used_uuids_;
  std::atomic<uint64_t> abort_count_{0};
  ReconfigureMembers connected_members_;              // those that were connected last
  c10::intrusive_ptr<c10d::Store> rendezvous_store_;  // where members are meeting just now
  std::optional<std::string> exclusion_reason_;       // why this member is
};

}  // namespace torch::comms
