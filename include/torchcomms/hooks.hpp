#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <torchcomms/operation.hpp>
#include <torchcomms/work.hpp>

// Callbacks around every operation. They run on the calling thread in order of registration. An
// exception of a pre-hook or post-hook leaves the call with its own type, and later hooks are
// skipped.
namespace torch::comms {

class TorchComm;
class TorchCommWindow;

// The argument of a pre-hook is the operation itself; its references are valid during the call.
using PreHookArgs = Operation;

using SendPreHookArgs = Send;
using RecvPreHookArgs = Recv;
using BroadcastPreHookArgs = Broadcast;
using AllReducePreHookArgs = AllReduce;
using ReducePreHookArgs = Reduce;
using AllGatherPreHookArgs = AllGather;
using AllGatherVPreHookArgs = AllGatherV;
using AllGatherSinglePreHookArgs = AllGatherSingle;
using ReduceScatterPreHookArgs = ReduceScatter;
using ReduceScatterVPreHookArgs = ReduceScatterV;
using ReduceScatterSinglePreHookArgs = ReduceScatterSingle;
using AllToAllSinglePreHookArgs = AllToAllSingle;
using AllToAllVSinglePreHookArgs = AllToAllVSingle;
using AllToAllPreHookArgs = AllToAll;
using BarrierPreHookArgs = Barrier;
using ScatterPreHookArgs = Scatter;
using GatherPreHookArgs = Gather;
using GatherSinglePreHookArgs = GatherSingle;
using SplitPreHookArgs = Split;
using NewWindowPreHookArgs = NewWindow;
using BatchOpIssuePreHookArgs = BatchOpIssue;
using FinalizePreHookArgs = Finalize;

// The arguments of post-hooks refer to the result weakly, because a hook must not prolong its life.
struct CollectivePostHookArgs {
  c10::weak_intrusive_ptr<TorchWork> work;
};
struct BatchOpIssuePostHookArgs {
  c10::weak_intrusive_ptr<TorchWork> work;
};
struct SplitPostHookArgs {
  std::weak_ptr<TorchComm> new_comm;
};
struct NewWindowPostHookArgs {
  std::weak_ptr<TorchCommWindow> new_window;
};
struct FinalizePostHookArgs {};
using PostHookArgs = std::variant<CollectivePostHookArgs, SplitPostHookArgs, NewWindowPostHookArgs,
                                  BatchOpIssuePostHookArgs, FinalizePostHookArgs>;

using PreHook = std::function<void(size_t op_id, const PreHookArgs& args)>;
using PostHook = std::function<void(size_t op_id, const PostHookArgs& args)>;
// Runs once when a communicator is aborted or has failed.
using AbortHook = std::function<void()>;
// Runs when a replay of a captured operation starts (`event` "S") or ends ("E"). `index` and
// `replay_id` start at 0. The library detects these events by polling: see
// docs/concepts/timeouts.md.
using GraphReplayHook = std::function<void(uint64_t graph_id, uint64_t replay_id, uint64_t stream,
                                           uint64_t index, std::string_view event)>;

// Removes a hook registration with remove(), which is idempotent and also safe after the
// communicator is destroyed. Destroying the handle leaves the hook registered.
class TC_API RemovableHandle {
 public:
  static std::unique_ptr<RemovableHandle> create(std::function<void()> remove);
  void remove();

 private:
  explicit RemovableHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  std::function<void()> remove_;
};

// The operation id that hooks of finalize() receive.
inline constexpr size_t kFinalizeOpId = static_cast<size_t>(-1);

}  // namespace torch::comms
