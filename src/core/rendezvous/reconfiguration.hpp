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

// Connects the members of a communicator that was created with enable_reconfigure=True, each time
// they change. It finds and checks the members; the backend connects them.
//
// The store: see open_member_store(). It is used only while members meet, each time on a connection
// of its own. Members with different stores meet at the store of the first one, which its handle
// names. The communicator keeps its store until close(). A store that it serves itself then ends,
// also for members that met there. They need it for the next reconfigure() only if this member is
// its first one.
//
// Agreement: a member publishes its call in the store. While it waits, it checks the calls of the
// members that it waits for. Only the newest call of a member counts. If a member has called
// another reconfigure() since, all members that wait for it throw kMismatch. The same holds for
// members that use one uuid for different lists.
//
// Threads: one at a time, except abort(): any.
class TC_API Reconfiguration {
 public:
  // Opens the store; it contacts no other rank.
  // Throws: CommError: kInvalidArgument that names what to set, kTimeout, kResourceExhausted.
  Reconfiguration(const std::string& backend, std::string name, const CommOptions& options);

  // Returns: the object of a communicator.
  // Throws: CommError(kUnsupported) if the communicator was created without
  // enable_reconfigure=True.
  static Reconfiguration& require(const std::unique_ptr<Reconfiguration>& its,
                                  const Context& context);

  // Releases the store; only handle() works afterwards.
  void close() noexcept { store_.reset(), rendezvous_store_.reset(); }

  InitHandle handle() const { return self_.to_text(); }

  // Parses and checks the options of reconfigure(); it changes nothing. `timeout` applies if the
  // options have none.
  // Throws: CommError(kInvalidArgument) for a uuid that was used before, for an invalid or repeated
  // handle, and for a list without this member. The same error is thrown for a handle without an
  // address if its member does not use this member's store.
  ReconfigureMembers parse_members(const ReconfigureOptions& options,
                                   std::chrono::milliseconds timeout) const;

  // How `members` differ from the members that were connected last, if they are those without some.
  struct ShrinkPlan {
    std::string parent_key;  // equal for all that were connected together, and unique to them
    std::vector<int> excluded_ranks;    // former ranks, in ascending order
    std::string not_shrinkable_reason;  // not empty: no shrink, or there were no other members
  };
  ShrinkPlan shrink_plan(const ReconfigureMembers& members) const;

  // Meets all members and lets `connect` connect them. Afterwards the handle has the new rank and
  // uuid, and excluded members are notified. The uuid counts as used.
  // Returns: a finished work. After a CommError it has failed on all members that take part:
  // kTimeout with the absent ones, kMismatch, kPeerFailed.
  // Throws: the exception that interrupts a wait.
  WorkPtr run(const ReconfigureMembers& members,
              const std::function<void(const Rendezvous& met)>& connect);

  // Makes the run() of members that were parsed before fail with kAborted within half a second. The
  // caller must undo what `connect` has done meanwhile.
  void abort() noexcept { abort_count_.fetch_add(1); }

  // Checks whether the other members have connected without this one, as far as the store answers
  // within half a second.
  // Returns: CommError(kStaleGeneration) if they have.
  // Throws: the exception that interrupts a wait.
  std::optional<CommError> check_excluded(const Context& context);
  // Returns: whether check_excluded() has found that before.
  bool is_excluded() const noexcept { return exclusion_reason_.has_value(); }

 private:
  // Returns: whether the store of that member is the store of this member.
  bool is_at_own_store(const InitHandleInfo& member) const noexcept;
  // Returns: a connection to the store of that member.
  c10::intrusive_ptr<c10d::Store> connect_to_store(const InitHandleInfo& member,
                                                   bootstrap::Deadline deadline,
                                                   const Context& context) const;
  Rendezvous rendezvous_members(const ReconfigureMembers& members);
  void require_not_aborted(const ReconfigureMembers& members) const;
  void on_connected(const ReconfigureMembers& members);
  bootstrap::ArrivalBarrierResult wait_for_members(const ReconfigureMembers& members,
                                                   bootstrap::Deadline deadline);
  void notify_excluded(const ReconfigureMembers& before, const ReconfigureMembers& members);
  // Returns: the notice of members that continue without this one.
  std::optional<std::string> find_exclusion_notice(const Context& context) const;

  std::string name_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  InitHandleInfo self_;
  std::set<int64_t> used_uuids_;
  std::atomic<uint64_t> abort_count_{0};
  ReconfigureMembers connected_members_;              // the members that were connected last
  c10::intrusive_ptr<c10d::Store> rendezvous_store_;  // the store where members are meeting now
  std::optional<std::string> exclusion_reason_;       // why this member is excluded
};

}  // namespace torch::comms
