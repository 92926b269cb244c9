#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <torchcomms/base/export.hpp>

#include "ctran/engine/engine_call.hpp"
#include "ctran/engine/group/link_context.hpp"

namespace torch::comms::ctran {

class GroupState;
class Window;

// A communicator: an ordered list of ranks of a LinkContext.
//
// Order: the collectives of a group run one after the other in the order of their calls, which must
// be the same on all ranks. Sends and receives match per (peer, direction, tag) in the order of
// their calls. They run concurrently with each other and with the collectives; a batch starts all
// of its calls at once. Each nonzero tag that a rank sends with costs a few hundred bytes until the
// group ends.
//
// Progress: a synchronous call and EngineWork::poll() move all calls of the context on the caller's
// own thread. If several threads wait, one of them makes progress for all. While no caller waits,
// the context's progress thread moves asynchronous work; it sleeps while there is none.
//
// Failure: an invalid call throws kInvalidArgument, kUnsupported or kTooLarge before anything is
// sent, and changes nothing. A failure at run time fails the group, on this rank and soon on all
// members: the calls in flight and all later calls raise the first error. Other groups continue. A
// completed call does not touch its memory any more. The error is one of:
// - kPeerFailed, which names the rank
// - kTimeout, which names the ranks that have not delivered
// - kMismatch, with what each rank has called
// - kAborted, kResourceExhausted or kSystem: this rank cannot send, or has no descriptor left for a
//   connection; other members see kPeerFailed that names this rank
// - kFinalized: the group was destroyed while the call was in flight
//
// Threads: any, for all methods. Only the destructor and split() must not run concurrently with
// other calls of this group.
class TC_API EngineGroup {
 public:
  // Creates the group of all ranks of the context. May be called once per context. `name` is for
  // error texts.
  static std::unique_ptr<EngineGroup> world(std::shared_ptr<LinkContext> context, std::string name);
  // Local, not a barrier: operations of peers that still wait for this rank fail.
  ~EngineGroup();
  EngineGroup(const EngineGroup&) = delete;
  EngineGroup& operator=(const EngineGroup&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  // Returns: a number that is equal on all members and differs between the groups of this process
  // in one context.
  uint32_t id() const noexcept;
  const std::string& name() const noexcept;
  const std::shared_ptr<LinkContext>& link_context() const noexcept;
  // Returns: the rank in the context of a member of this group.
  int context_rank(int rank) const noexcept;

  // Runs a call to its end.
  // Throws: the error of the call.
  void run(const EngineCall& call);
  // Runs a batch of sends and receives, at least one, to its end.
  // Throws: the first error.
  void run(std::span<const EngineCall> batch);

  // Starts a call or a batch and returns at once. Errors at run time are in the work.
  // Lifetime: `listener` must outlive the call.
  EngineWork start(const EngineCall& call, CompletionListener* listener = nullptr);
  EngineWork start(std::span<const EngineCall> batch, CompletionListener* listener = nullptr);

  // Whether the members may give a split different names.
  enum class SplitNames : uint8_t { kMustMatch, kMayDiffer };
  // Creates a group of these members of this group, in this order. All of them call split() with
  // the same list; other members need not call it. An empty list returns nullptr at once. Uses the
  // existing links and no store.
  // Throws: CommError. kInvalidArgument: the list is invalid or does not contain this rank.
  // kMismatch: the lists differ, or the names differ although they must match; differing names
  // change nothing. Otherwise like an operation. A split that fails in another way fails this
  // group, too.
  std::unique_ptr<EngineGroup> split(std::span<const int> ranks, std::string name,
                                     const CallTimeout& limit = kNoTimeout,
                                     SplitNames names = SplitNames::kMustMatch);

  // Announces that this rank makes no more calls in the group. The members get a leave message once
  // they know of everything that this rank has sent, and a second one when it receives nothing
  // more. Window waits delay neither. A window wait for a member that has left, too, fails with
  // kPeerFailed. Local.
  void announce_leave() noexcept;
  // Announces that this rank has quiesced: all device work that it has launched for the members has
  // ended for good. No write of it is on its way to them. The members that stay in the group
  // receive the message. Local.
  void announce_quiesced() noexcept;

  // Fails all calls in flight of this group with kAborted shortly, and all later ones. `why` is for
  // the error text. The first failure counts.
  // Threads: any, at any time.
  void abort(const std::string& why = {}) noexcept;
  // Fails the group with the error of another component that the members share, such as the GPU
  // part. Members receive it like the error of an operation: kAborted becomes kPeerFailed that
  // names this rank; kMismatch stays.
  void abort(const CommError& why) noexcept;
  // Returns: the error that has failed the group. Cheap while there is none.
  std::optional<CommError> failure() const;
  // Makes progress until no message moves any more, at most 16 times, and then returns failure(). A
  // process that was suspended while its peers failed learns of the failure before its next call.
  std::optional<CommError> poll_failure() const;
  // Reads the failure of a group without keeping the group alive. Returns nothing once the group
  // has been destroyed.
  // Threads: any.
  class GroupObserver {
   public:
    std::optional<CommError> failure() const;  // like poll_failure()
    // Returns: the members known to have quiesced, one bit per rank below 32.
    uint32_t quiesced_ranks() const noexcept;

   private:
    friend class EngineGroup;
    std::weak_ptr<GroupState> state_;
  };
  GroupObserver observer() const;
  // Returns: the number of collectives called so far, which is the number of the last one in
  // errors.
  uint64_t sequence() const noexcept;

 private:
  friend class Window;
  explicit EngineGroup(std::shared_ptr<LinkContext> context, std::shared_ptr<GroupState> group);
  std::shared_ptr<LinkContext> link_context_;
  std::shared_ptr<GroupState> state_;
};

}  // namespace torch::comms::ctran
