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

// Runs the rendezvous of a communicator that was created with enable_reconfigure=True, each time
// its members change. It finds and checks the members; the backend connects them.
//
// The store: see open_member_store(). Members with different stores use the store of the first one,
// which its handle names. This class releases it after run(); the backend may keep
// Rendezvous::store until the next run(). The communicator keeps its own store until close(). A
// store that it serves itself then ends, also for members that use it. They need it for the next
// reconfigure() only if this member is the first one of its list.
//
// Agreement: a member publishes its call in the store. While it waits, it checks the calls of the
// members that it waits for. Only the newest call of a member counts. If a member has called
// another reconfigure() since, the calls of all members that wait for it fail with kMismatch. The
// same holds for members that use one uuid for different lists.
//
// Threads: one at a time, except abort(): any.
class TC_API Reconfiguration {
 public:
  // Opens the store. It waits for no other rank, except for rank 0 if that serves the store at
  // MASTER_ADDR:MASTER_PORT.
  // Blocks: at most init_timeout() and 1 s.
  // Throws: CommError: kInvalidArgument that names what to set, kTimeout, kPeerFailed,
  // kResourceExhausted, kSystem. The exception that interrupts a wait.
  Reconfiguration(const std::string& backend, std::string name, const CommOptions& options);

  // Returns: `*its`, the object of a communicator.
  // Throws: CommError(kUnsupported) with `context` if the communicator was created without
  // enable_reconfigure=True, so that `its` is null.
  static Reconfiguration& require(const std::unique_ptr<Reconfiguration>& its,
                                  const Context& context);

  // Releases the store. Afterwards only handle(), abort() and is_excluded() may be called.
  void close() noexcept { store_.reset(), rendezvous_store_.reset(); }

  // Returns: the init handle of this member; it changes with each successful run().
  InitHandle handle() const { return self_.to_text(); }

  // Parses and checks the options of reconfigure(); it changes nothing. `timeout` applies if the
  // options have none. An abort() after this call ends the run() of the result.
  // Blocks: about a second, if a store without an address does not answer.
  // Throws: CommError(kInvalidArgument) for an invalid timeout, for a uuid that was used before,
  // for an invalid or repeated handle, and for a list without this member. The same error is thrown
  // if a member cannot reach the first one's store: see require_reachable_store(). The exception
  // that interrupts a wait.
  ReconfigureMembers parse_members(const ReconfigureOptions& options,
                                   std::chrono::milliseconds timeout) const;

  // Says which of the members that were connected last are missing from a new list. There is a plan
  // only if the lists are equal otherwise.
  struct ShrinkPlan {
    std::string parent_key;  // equal for all that were connected together, and unique to them
    std::vector<int> excluded_ranks;    // former ranks, in ascending order
    std::string not_shrinkable_reason;  // why there is no plan; empty if there is one
  };
  // Compares `members` with the members that were connected last; while `connect` of run() is
  // running, those are still the former members.
  ShrinkPlan shrink_plan(const ReconfigureMembers& members) const;

  // Waits for all members and lets `connect` connect them. After success the handle has the new
  // rank and uuid, and excluded members are notified. The uuid counts as used also after a failure.
  // Returns: a finished work. A CommError, also of `connect`, is the error of the work: kTimeout
  // with the absent members, kMismatch, kPeerFailed, kAborted, kResourceExhausted, kSystem. An
  // error while the members wait for each other fails the calls of all members that wait.
  // Blocks: until all members have arrived, normally at most one second beyond the timeout of
  // `members`, and while `connect` runs.
  // Throws: the exception that interrupts a wait; exceptions of `connect` other than CommError.
  WorkPtr run(const ReconfigureMembers& members,
              const std::function<void(const Rendezvous& result)>& connect);

  // Makes the run() of members that were parsed before fail with kAborted, within half a second
  // while it waits. The caller of run() must undo what `connect` has done.
  void abort() noexcept { abort_count_.fetch_add(1); }

  // Checks whether the members that were connected last have connected again without this one. It
  // reads a notice in the stores of up to four of them, and skips stores that do not answer in
  // time.
  // Returns: CommError(kStaleGeneration) with `context` if they have.
  // Blocks: half a second, or up to 5 s if a store accepts the connection but does not answer.
  // Throws: the exception that interrupts a wait.
  std::optional<CommError> check_excluded(const Context& context);
  // Returns: whether check_excluded() has found that since the last successful run().
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
  c10::intrusive_ptr<c10d::Store> rendezvous_store_;  // the store of the run() in progress
  std::optional<std::string> exclusion_reason_;       // why this member is excluded
};

}  // namespace torch::comms
