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

// A communicator: an ordered list of a family's ranks.
//
// Order: the collectives of a group run one after the other in the order of their calls, which must
// be the same on all ranks. Sends and receives match per (peer, direction, tag) in the order of
// their calls, and run beside each other and the collectives; a batch starts all of its calls at
// once. Each tag but 0 that a rank sends with costs a few hundred bytes until the group's end.
//
// Progress: a synchronous call, and EngineWork::poll_once(), move everything of the family on the
// caller's own thread; where several wait, one does it for all. Asynchronous work moves on a thread
// of the family while nobody waits, which sleeps when there is none.
//
// Failure: a wrong call throws kInvalidArgument, kUnsupported or kTooLarge before anything is sent,
// and changes nothing. What the world does ends the group, here and soon on all members: the calls
// in flight and all later ones raise the first error, which is kPeerFailed (naming the rank),
// kTimeout (naming who has not delivered), kSizeMismatch (with what each rank called); or kAborted,
// kResourceExhausted or kSystem (this rank cannot send, or has no descriptor left for a
// connection), which other members see as kPeerFailed that names this one. Other groups go on.
// kFinalized: the group was destroyed while the call was in flight. An ended call touches its
// memory no more.
//
// Threads: all methods, any thread; but the destructor and next_split() not beside others of this
// group.
class TC_API EngineGroup {
 public:
  // All ranks of the family, once a family. `name` is for errors.
  static std::unique_ptr<EngineGroup> world(std::shared_ptr<LinkContext> family, std::string name);
  // Local, not a barrier: what others still wait for from this rank fails there.
  ~EngineGroup();
  EngineGroup(const EngineGroup&) = delete;
  EngineGroup& operator=(const EngineGroup&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  // Equal on all members; no two groups of a rank in its family have the same.
  uint32_t id() const noexcept;
  const std::string& name() const noexcept;
  const std::shared_ptr<LinkContext>& link_context() const noexcept;
  // The family's number of a member.
  int context_rank(int rank) const noexcept;

  // Runs to its end. Throws its error.
  void run(const EngineCall& call);
  // Sends and receives alone, at least one. The first error.
  void run(std::span<const EngineCall> batch);

  // Returns at once; the world's errors are in the work. `listener` outlives the call.
  EngineWork start(const EngineCall& call, CompletionListener* listener = nullptr);
  EngineWork start(std::span<const EngineCall> batch, CompletionListener* listener = nullptr);

  // Whether each member may call a split what it likes.
  enum class SplitNames : uint8_t { kMustMatch, kMayDiffer };
  // A group of these members of this one, in this order; all of them call it with the same list,
  // others need not. nullptr for an empty list, at once. Uses the links that there are: no store.
  // Throws CommError: kInvalidArgument for a list that cannot be, or without this rank;
  // kSizeMismatch where the names have to be alike and differ, with nothing changed, or the lists;
  // otherwise as an operation. A failed split fails this group, too.
  std::unique_ptr<EngineGroup> split(std::span<const int> ranks, std::string name,
                                     const CallTimeout& limit = kNoTimeout,
                                     SplitNames names = SplitNames::kMustMatch);

  // This rank calls nothing any more. Others learn of it once what it has in flight is over, but
  // for waits of windows; one for a member that has left, too, ends with kPeerFailed. Local.
  void announce_leave() noexcept;
  // What this rank has launched on its device for the members has ended, for good: nothing of it is
  // on its way to them. They learn of it, those who live on. Local.
  void announce_quiesced() noexcept;

  // Ends all calls of this group with kAborted, within a moment, and all later ones. `why` is for
  // the text. Any thread, at any time; the first failure counts.
  void abort(const std::string& why = {}) noexcept;
  // The same with the error of something beside the group that its members share. They get it as
  // that of an operation: kAborted as kPeerFailed that names this rank, kSizeMismatch as it is.
  void abort(const CommError& why) noexcept;
  // The error that ended the group. Cheap while there is none.
  std::optional<CommError> failure() const;
  // The same after what peers have said so far was heard, as far as a few turns go: whoever slept
  // while its peers gave up learns of that before it calls anything. Costs a turn or two.
  std::optional<CommError> poll_failure() const;
  // The same for whoever must not keep the group: nothing once it has ended. Any thread.
  class GroupObserver {
   public:
    std::optional<CommError> failure() const;  // as poll_failure()
    // Members below 32, a bit each, that rest, as far as has been heard.
    uint32_t quiesced_ranks() const noexcept;

   private:
    friend class EngineGroup;
    std::weak_ptr<GroupState> state_;
  };
  GroupObserver observer() const;
  // Collectives that were called, so far: the number of the last one in errors.
  uint64_t sequence() const noexcept;

 private:
  friend class Window;
  explicit EngineGroup(std::shared_ptr<LinkContext> family, std::shared_ptr<GroupState> membership);
  std::shared_ptr<LinkContext> link_context_;
  std::shared_ptr<GroupState> state_;
};

}  // namespace torch::comms::ctran
